//! The opcodes, with Python's names.

macro_rules! opcodes {
    ($($name:ident = $byte:expr),* $(,)?) => {
        $(pub(super) const $name: u8 = $byte;)*

        /// The name of an opcode.
        pub(super) fn name(byte: u8) -> Option<&'static str> {
            match byte {
                $($name => Some(stringify!($name)),)*
                _ => None,
            }
        }
    };
}

opcodes! {
    MARK = b'(', STOP = b'.', POP = b'0', POP_MARK = b'1', DUP = b'2',
    NONE = b'N', NEWTRUE = 0x88, NEWFALSE = 0x89,
    INT = b'I', LONG = b'L', FLOAT = b'F', STRING = b'S', UNICODE = b'V',
    BININT = b'J', BININT1 = b'K', BININT2 = b'M', LONG1 = 0x8a, LONG4 = 0x8b, BINFLOAT = b'G',
    BINSTRING = b'T', SHORT_BINSTRING = b'U',
    BINUNICODE = b'X', SHORT_BINUNICODE = 0x8c, BINUNICODE8 = 0x8d,
    BINBYTES = b'B', SHORT_BINBYTES = b'C', BINBYTES8 = 0x8e, BYTEARRAY8 = 0x96,
    NEXT_BUFFER = 0x97, READONLY_BUFFER = 0x98,
    EMPTY_LIST = b']', LIST = b'l', APPEND = b'a', APPENDS = b'e',
    EMPTY_TUPLE = b')', TUPLE = b't', TUPLE1 = 0x85, TUPLE2 = 0x86, TUPLE3 = 0x87,
    EMPTY_DICT = b'}', DICT = b'd', SETITEM = b's', SETITEMS = b'u',
    EMPTY_SET = 0x8f, ADDITEMS = 0x90, FROZENSET = 0x91,
    GET = b'g', BINGET = b'h', LONG_BINGET = b'j', PUT = b'p', BINPUT = b'q', LONG_BINPUT = b'r', MEMOIZE = 0x94,
    PROTO = 0x80, FRAME = 0x95,
    GLOBAL = b'c', STACK_GLOBAL = 0x93, REDUCE = b'R', BUILD = b'b', INST = b'i', OBJ = b'o',
    NEWOBJ = 0x81, NEWOBJ_EX = 0x92, PERSID = b'P', BINPERSID = b'Q', EXT1 = 0x82, EXT2 = 0x83, EXT4 = 0x84,
}

/// Whether an opcode names, makes or calls something that is not plain data.
pub(super) fn executes(byte: u8) -> bool {
    matches!(
        byte,
        GLOBAL
            | STACK_GLOBAL
            | REDUCE
            | BUILD
            | INST
            | OBJ
            | NEWOBJ
            | NEWOBJ_EX
            | PERSID
            | BINPERSID
            | EXT1
            | EXT2
            | EXT4
    )
}
