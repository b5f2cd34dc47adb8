#!/bin/sh
# Stands for Istio's pilot-agent, which there is none of in the cluster of processes: it starts navarch-agent, as the arguments of Istio's template ask.
set -eu
case "$1" in
istio-iptables)
  exec navarch-agent "$@" ;;
request) # --debug-port=PORT POST drain: the hook before the container ends
  exec navarch-agent drain --stats-port="${2#--debug-port=}" ;;
proxy) ;;
*)
  echo "pilot-agent.sh: no command $1" >&2
  exit 2 ;;
esac
shift 2 # proxy sidecar
envoy= components= agent=
while [ $# -gt 0 ]; do
  case "$1" in
  --domain) shift ;; # the agent is told nothing by it: POD_NAMESPACE says where it is
  --proxyLogLevel=*) envoy="${1#*=}" ;;
  --proxyComponentLogLevel=*) components="${1#*=}" ;;
  --log_output_level=*) agent="${1##*[=:]}" ;;
  *)
    echo "pilot-agent.sh: no argument $1" >&2
    exit 2 ;;
  esac
  shift
done
exec navarch-agent run --envoy-log-level="$envoy" --envoy-component-log-level="$components" --log-level="$agent"
