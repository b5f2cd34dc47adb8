package inject

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"istio.io/api/label"
	corev1 "k8s.io/api/core/v1"
)

// Path maps names of the proxy's environment variables to values, as a webhook's URL path states them (ParsePath).
type Path map[string]string

const (
	clusterVariable = "ISTIO_META_CLUSTER_ID"
	networkVariable = "ISTIO_META_NETWORK"
)

var variable = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*$`)

// ParsePath parses /inject/KEY/VALUE/..., such as /inject/cluster/west/net/network-2. The keys cluster and net set the
// proxy's cluster and network. Every other key, in upper case, is an environment variable of the proxy. A slash in a
// value is written --slash--. The last value of a repeated key is used. A slash at the end is ignored. For /inject the
// result is empty and not nil. Errors: the path is not /inject or below, the last key has no value, or a key is not the
// name of a variable (letters, digits and underscores, no digit first). With an error the result is nil.
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

// place is the location that a Pod's proxy reports: cluster, network and other variables of the path.
type place struct {
	network string // empty: unknown
	env     Path   // all variables, including cluster and network
}

// place returns the location of a Pod's proxy. The path takes precedence over the values of the ConfigMap. A network
// that the Pod's author set in a label takes precedence over both.
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
		delete(p.env, networkVariable)
	}
	if p.network != "" {
		p.env[networkVariable] = p.network
	}
	return p
}

// onto writes the location into the proxy's variables, and the network into a label of the Pod. The control plane reads
// the label. The proxy's container (sidecar) may be nil.
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
