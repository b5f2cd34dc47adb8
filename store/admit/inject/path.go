package inject

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"istio.io/api/label"
	corev1 "k8s.io/api/core/v1"
)

// Path is what the URL of a webhook says about the Pods that it sends, as variables of the proxy.
type Path map[string]string

const (
	clusterVariable = "ISTIO_META_CLUSTER_ID"
	networkVariable = "ISTIO_META_NETWORK"
)

var variable = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*$`)

// ParsePath reads /inject/KEY/VALUE/..., as /inject/cluster/west/net/network-2: cluster and net are the proxy's cluster and network, every other key a
// variable of its environment. A slash in a value is written --slash--. An error says which part of it is none.
func ParsePath(path string) (Path, error) {
	rest, ok := strings.CutPrefix(strings.TrimSuffix(path, "/"), "/inject")
	if !ok || rest != "" && rest[0] != '/' {
		return nil, fmt.Errorf("path %.100q is not /inject or below", path)
	}
	out := Path{}
	if rest == "" {
		return out, nil
	}
	parts := strings.Split(rest[1:], "/")
	if len(parts)%2 != 0 {
		return nil, fmt.Errorf("path %.100q: key %.100q has no value", path, parts[len(parts)-1])
	}
	for pair := range slices.Chunk(parts, 2) {
		key := map[string]string{"cluster": clusterVariable, "net": networkVariable}[pair[0]]
		if key == "" {
			key = strings.ToUpper(pair[0])
		}
		if !variable.MatchString(key) {
			return nil, fmt.Errorf("path %.100q: %.100q is not the name of a variable", path, pair[0])
		}
		out[key] = strings.ReplaceAll(pair[1], "--slash--", "/")
	}
	return out, nil
}

// place is where a Pod's proxy says that it is: the cluster and the network, and other variables of the path.
type place struct {
	network string
	env     Path
}

// place is by the path before the values of the ConfigMap; the Pod's own label counts most for the network.
func (s *Settings) place(pod *corev1.Pod, path Path, before injected) place {
	p := place{network: s.Config.values.Global.Network, env: Path{}}
	if cluster := s.Config.values.Global.MultiCluster.ClusterName; cluster != "" {
		p.env[clusterVariable] = cluster
	}
	for name, value := range path {
		if value != "" || name != clusterVariable && name != networkVariable {
			p.env[name] = value
		}
	}
	if n := p.env[networkVariable]; n != "" {
		p.network = n
	}
	if n, there := pod.Labels[label.TopologyNetwork.Name]; there && !has(before.names.Labels, label.TopologyNetwork.Name) {
		p.network = n
	}
	if p.network != "" {
		p.env[networkVariable] = p.network
	}
	return p
}

// onto tells the proxy, and by a label the control plane, which learns a Pod's network from it.
func (p place) onto(pod *corev1.Pod, sidecar *corev1.Container) {
	if p.network != "" {
		pod.Labels[label.TopologyNetwork.Name] = p.network
	}
	if sidecar == nil {
		return
	}
	for _, name := range sorted(p.env) {
		setEnv(sidecar, name, p.env[name])
	}
}
