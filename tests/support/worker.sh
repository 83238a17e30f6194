#!/bin/sh
# Stands in for memlab-worker where no libtorch is: speaks its protocol, and does what the run's seed tells it to.
# The numbers follow from batch size and steps, so that tables show which run they are of.

if [ "$1" = probe ]; then
    cuda=null gpus='' why='"a stand-in has no GPU"'
    if [ -n "$STAND_IN_GPUS" ]; then
        why=null cuda='"13.0"'
        for _ in $(seq "$STAND_IN_GPUS"); do
            gpus="$gpus${gpus:+,}{\"name\":\"Stand-in\",\"memory_bytes\":1073741824,\"compute_capability\":[9,0],\"multiprocessors\":1}"
        done
    fi
    echo "{\"schema_version\":1,\"worker_build\":\"${STAND_IN_BUILD:-stand-in}\",\"libtorch_version\":\"2.11.0+cpu\",\"cuda_version\":$cuda,\"gpus\":[$gpus],\"cuda_unavailable\":$why}"
    exit 0
fi

if [ "$2" = --request ]; then request=$(cat "$3"); else IFS= read -r request; fi
between() { # text from $1 to $2, in the request
    rest=${request#*"$1"}
    found=${rest%%"$2"*}
}
between '"run_id":"' '"'; run_id=$found
between '"spec":' ',"report":'; spec=$found
between ',"report":"' '"'; report=$found
between '"provenance":' '}}'; provenance=$found
of() { # the number behind a key of the spec
    rest=${spec#*"\"$1\":"}
    value=${rest%%[,\}]*}
}
of seed; seed=$value
of batch_size; batch=$value
of steps; steps=$value
of case; case=$value
of preset; preset=$value
of precision; precision=$value
of world_size; world=$value
of rank_zero_extra_samples; extra=$value
of device; device=$value
of capacity; capacity=$value
rank=${RANK:-${SLURM_PROCID:-0}}

say() { echo "{\"event\":\"phase\",\"rank\":$rank,\"step\":$1,\"phase\":\"$2\"}"; }
sample() { samples="$samples,{\"allocated_mib\":$1,\"device_used_mib\":600,\"peak_allocated_mib\":$2,\"phase\":\"$3\",\"reserved_mib\":200,\"step\":$4}"; }

say -1 after_model
case $seed in
    101) echo 'cannot do this' >&2; exit 1 ;;
    102) cat > /dev/null; exit 1 ;; # until its lifeline is cut
    103) trap '' TERM; while :; do sleep 1; done ;; # until it is killed
    104) kill -KILL $$ ;;
    105) printf '{"batch_size_per_device": 1, "case"' > "$report"; exit 0 ;;
    106) exit 0 ;;
    108) sleep 0.4 ;;
    109) echo 'a library that prints' ;;
    110) kill -SEGV $$ ;;
    111) echo '{"event":"end","outcome":"error","message":"the loss is not finite"}'; exit 1 ;;
    112) [ "$rank" = 1 ] && { echo 'rank 1 fails' >&2; exit 1; }; cat > /dev/null; exit 1 ;;
    113) # as the worker: what the launcher says, else what Slurm does
        echo "$CUDA_VISIBLE_DEVICES $rank ${LOCAL_RANK:-$SLURM_LOCALID} ${WORLD_SIZE:-$SLURM_NTASKS} ${MEMLAB_RENDEZVOUS##*/}" >&2
        sleep 0.2 ;;
    115) memory=$(head -c 300000000 /dev/zero | tr '\0' x); sleep 60; echo "${#memory}" ;; # more than its job asked for
    116) case $request in *'"attempt":1,'*) cat > /dev/null; exit 1 ;; esac ;; # well only when tried again
    117) sleep 5 ;;
    119) sleep 2; [ "$SLURMD_NODENAME" != node2 ] || exit 1 ;; # a node that is not well
esac
[ "$rank" = 0 ] || exit 0

outcome=ok oom=null loss=0.5 samples=
forward=$((100 + 10 * batch)) clear=110.5
# A GPU whose threads take 24 MiB more than its model says.
[ "$device" = '"cuda"' ] && forward=$((forward + 24)) clear=158.5
sample 100 100 after_model -1
sample 100 100 after_optimizer_creation -1
sample 100 100 after_input -1
step=0
while [ $step -lt "$steps" ]; do
    fits=yes
    [ "$capacity" != null ] && [ "$forward" -gt $((capacity / 1048576)) ] && fits=no
    [ "$seed" = 107 ] && fits=no
    [ "$seed" = 118 ] && [ "$batch" = 4 ] && fits=no # although 5 fits
    if [ $fits = no ]; then
        outcome=oom loss=null
        oom="{\"rank\":0,\"step\":0,\"during\":\"forward\",\"requested_mib\":20.0,\"capacity_mib\":128.0,\"message\":\"tried to allocate 20.00 MiB\"}"
        break
    fi
    say $step after_forward
    sample $forward "$forward" after_forward $step
    sample 120 "$forward" after_backward $step
    sample 120 "$forward" after_optimizer_step $step
    sample $clear "$forward" after_clear_gradients $step
    step=$((step + 1))
done
[ "$seed" = 114 ] && loss=NaN
indicators="{\"between_step_growth_mib\":0.0,\"first_step_persistent_change_mib\":10.5,\"largest_forward_increase_mib\":$((10 * batch)).0,\"maximum_peak_allocated_mib\":$forward.0}"
[ $outcome = oom ] && indicators='{"between_step_growth_mib":null,"first_step_persistent_change_mib":null,"largest_forward_increase_mib":null,"maximum_peak_allocated_mib":100.0}'
ranks='' r=0
while [ $r -lt "$world" ]; do
    ranks="$ranks${ranks:+,}{\"device_free_at_end_mib\":null,\"device_total_mib\":1024,\"gpu_name\":\"Stand-in\",\"indicators\":$indicators,\"local_batch_size\":$batch,\"local_rank\":$r,\"rank\":$r,\"samples\":[${samples#,}],\"snapshot\":null}"
    r=$((r + 1))
done
rest=${spec#*\"model\":}; model=${rest%%\}*}\}
cat > "$report.tmp" <<REPORT
{"batch_size_per_device":$batch,"case":$case,"cuda_version":null,"exercise":"stand-in","final_loss_rank_zero":$loss,
"hostname_rank_zero":"here","measurement_notes":{},"model_config":$model,"parameter_count":1,"parameters_fp32_mib":1.0,
"precision":$precision,"preset":$preset,"python_version":null,"pytorch_version":"2.11.0+cpu","rank_reports":[$ranks],
"rank_zero_extra_samples":$extra,"seed":$seed,"slurm_job_id":null,"steps":$steps,"world_size":$world,"schema_version":1,
"run_id":"$run_id","spec":$spec,"outcome":"$outcome","libtorch_version":"2.11.0","worker_build":"${STAND_IN_BUILD:-stand-in}",
"provenance":$provenance},"oom":$oom}
REPORT
mv "$report.tmp" "$report"
echo "{\"event\":\"end\",\"outcome\":\"$outcome\",\"message\":null}"
[ $outcome = ok ] || exit 3
