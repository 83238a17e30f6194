// C++ exceptions must not reach Rust: runs a body and turns what it throws into a status and a message.
#pragma once

#include "shim.h"

#include <c10/util/Exception.h>

#include <string>

namespace memlab {

// The reason of this thread's last failure.
std::string& last_error();

template <typename Body>
int32_t guarded(Body body) {
  try {
    body();
    return kMemlabOk;
  } catch (const c10::Error& error) {
    last_error() = error.what_without_backtrace();
  } catch (const std::exception& error) {
    last_error() = error.what();
  } catch (...) {
    last_error() = "an exception that is not a std::exception";
  }
  return kMemlabError;
}

} // namespace memlab
