package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	"sigs.k8s.io/yaml"
)

const (
	metaPrefix      = "ISTIO_META_"
	dnsProxyAddr    = "DNS_PROXY_ADDR"
	metaJSONPrefix  = "ISTIO_METAJSON_"
	headerPrefix    = "XDS_HEADER_"
	localityLabel   = "istio-locality"
	topologyLabel   = "topology.istio.io/locality"
	configKey       = "proxy.istio.io/config" // annotation that overrides PROXY_CONFIG for one Pod
	defaultCluster  = "istio-proxy"
	podTemplateHash = "pod-template-hash"
)

// identity contains a proxy's node, configuration and environment, as Istio's sidecar injection sets them.
type identity struct {
	node    *corev3.Node
	proxy   *meshv1alpha1.ProxyConfig
	headers map[string]string // ClusterID and XDS_HEADER_*, sent to the control plane
	vars    map[string]string // variables of the environment, by name
	// addresses are the IP addresses of the Pod, the primary one first.
	addresses []string
}

// lookup returns the value of an environment variable. If the variable is empty or not set, lookup returns the value of
// this name in proxyMetadata of the proxy's configuration, or an empty string.
func (i *identity) lookup(key string) string {
	return cmp.Or(i.vars[key], i.proxy.GetProxyMetadata()[key])
}

// sources are the inputs of a proxy's identity in addition to the environment. The folder and the file may be absent,
// for example outside of Kubernetes.
type sources struct {
	podInfo string // folder of the downward API, with the files "labels" and "annotations"
	mesh    string // file of the mesh configuration
	domain  string // DNS domain of the proxy, NAMESPACE.svc.DOMAIN; default NAMESPACE.svc.cluster.local
}

// identify derives the proxy's identity from the sources and the environment. The parameter env has rows "KEY=value".
// If several rows have the same key, the last one counts. A nodeType other than sidecar and router is an error. Other
// errors name the variable, annotation or file that is absent or cannot be parsed.
func identify(nodeType string, from sources, env []string) (*identity, error) {
	if nodeType != "sidecar" && nodeType != "router" {
		return nil, fmt.Errorf("node type %q: want sidecar or router", nodeType)
	}
	vars := map[string]string{}
	for _, row := range env {
		if k, v, ok := strings.Cut(row, "="); ok {
			vars[k] = v
		}
	}
	name, ns, err := nameOf(vars)
	if err != nil {
		return nil, err
	}
	labels, err := downward(filepath.Join(from.podInfo, "labels"))
	if err != nil {
		return nil, err
	}
	annotations, err := downward(filepath.Join(from.podInfo, "annotations"))
	if err != nil {
		return nil, err
	}
	defaults, err := meshDefaults(from.mesh)
	if err != nil {
		return nil, err
	}
	proxy, err := proxyConfig(defaults, vars["PROXY_CONFIG"], annotations[configKey])
	if err != nil {
		return nil, err
	}
	meta, err := metadataOf(vars, proxy, labels)
	if err != nil {
		return nil, err
	}
	ips, err := addresses(vars)
	if err != nil {
		return nil, err
	}
	meta["NAME"], meta["NAMESPACE"], meta["INSTANCE_IPS"] = name, ns, strings.Join(ips, ",")
	if err := complement(meta, vars["SERVICE_ACCOUNT"], annotations, proxy); err != nil {
		return nil, err
	}
	st, err := toStruct(meta)
	if err != nil {
		return nil, fmt.Errorf("node metadata: %w", err)
	}
	allLabels, _ := meta["LABELS"].(map[string]string)
	return &identity{
		node: &corev3.Node{
			Id:       fmt.Sprintf("%s~%s~%s.%s~%s", nodeType, ips[0], name, ns, cmp.Or(from.domain, ns+".svc.cluster.local")),
			Cluster:  clusterOf(proxy, meta, ns),
			Locality: localityOf(allLabels),
			Metadata: st,
		},
		proxy:   proxy,
		headers: headersOf(vars),
		vars:    vars, addresses: ips,
	}, nil
}

// selfDiscovery reports whether Envoy needs the cluster of its own workload for zone-aware load balancing.
// ISTIO_META_ENABLE_SELF_DISCOVERY requests it, for sidecars only.
func (i *identity) selfDiscovery() bool {
	enabled, err := strconv.ParseBool(i.node.GetMetadata().GetFields()["ENABLE_SELF_DISCOVERY"].GetStringValue())
	return err == nil && enabled && strings.HasPrefix(i.node.GetId(), "sidecar~")
}

// spiffeID builds the SPIFFE ID from the namespace and the variables TRUST_DOMAIN and SERVICE_ACCOUNT, which the
// injection template sets. It returns the zero ID if TRUST_DOMAIN or SERVICE_ACCOUNT is not set. spiffeID returns an
// error if nameOf fails, or if a variable is not valid in a SPIFFE ID. The error names the variable.
func (i *identity) spiffeID() (spiffeid.ID, error) {
	domain, account := i.vars["TRUST_DOMAIN"], i.vars["SERVICE_ACCOUNT"]
	_, namespace, err := nameOf(i.vars)
	if err != nil || domain == "" || account == "" {
		return spiffeid.ID{}, err
	}
	td, err := spiffeid.TrustDomainFromString(domain)
	if err != nil {
		return spiffeid.ID{}, fmt.Errorf("TRUST_DOMAIN: %w", err)
	}
	id, err := spiffeid.FromSegments(td, "ns", namespace, "sa", account)
	if err != nil {
		return spiffeid.ID{}, fmt.Errorf("SERVICE_ACCOUNT and the namespace: %w", err)
	}
	return id, nil
}

// istioVersion is the Istio version that this agent declares for its proxy, unless the variable
// ISTIO_META_ISTIO_VERSION is set. It is the version of the module istio.io/api. The control plane compares
// proxyVersion of EnvoyFilters with this version.
const istioVersion = "1.32.0"

// complement adds the proxy's configuration to meta, and the service account and annotations if there are any. It adds
// ISTIO_VERSION if meta lacks it. It sets identityKey (NAVARCH_IDENTITY) to "none".
func complement(
	meta map[string]any, account string, annotations map[string]string, proxy *meshv1alpha1.ProxyConfig,
) (err error) {
	if _, stated := meta["ISTIO_VERSION"]; !stated {
		meta["ISTIO_VERSION"] = istioVersion
	}
	meta[identityKey] = identityNone
	if account != "" {
		meta["SERVICE_ACCOUNT"] = account
	}
	if len(annotations) > 0 {
		meta["ANNOTATIONS"] = annotations
	}
	meta["PROXY_CONFIG"], err = protoMap(proxy)
	return err
}

// nameOf returns the name and namespace of the Pod. Without POD_NAME, as on a virtual machine, the name is the host
// name up to its first dot. nameOf returns an error if no namespace is set, or if there is neither POD_NAME nor a host
// name.
func nameOf(vars map[string]string) (name, namespace string, err error) {
	namespace = cmp.Or(vars["POD_NAMESPACE"], vars["ISTIO_NAMESPACE"])
	if namespace == "" {
		return "", "", errors.New("POD_NAMESPACE is not set: a pod has it by injection, a machine from cluster.env (--env-file)")
	}
	if name = vars["POD_NAME"]; name == "" {
		host, err := os.Hostname()
		if err != nil {
			return "", "", fmt.Errorf("POD_NAME is not set, and the host has no name: %w", err)
		}
		name, _, _ = strings.Cut(host, ".")
	}
	return name, namespace, nil
}

// metadataOf returns the node metadata that variables set. DNS_PROXY_ADDR and ISTIO_META_* become strings. The keys of
// each JSON object in ISTIO_METAJSON_* are merged into the metadata, except that ISTIO_METAJSON_LABELS is merged into
// LABELS. Labels of the Pod override labels with the same key. The field proxyMetadata of the proxy's configuration has
// the lowest precedence, as with stock agents. The error names a variable that is not a JSON object.
func metadataOf(
	vars map[string]string, proxy *meshv1alpha1.ProxyConfig, podLabels map[string]string,
) (map[string]any, error) {
	meta, labels := map[string]any{}, map[string]string{}
	for k, v := range proxy.GetProxyMetadata() {
		if key, ok := strings.CutPrefix(k, metaPrefix); ok {
			meta[key] = v
		}
	}
	// address of the DNS server that Envoy asks for hosts outside of the mesh
	if at := vars[dnsProxyAddr]; at != "" {
		meta[dnsProxyAddr] = at
	}
	for _, k := range slices.Sorted(maps.Keys(vars)) {
		if key, ok := strings.CutPrefix(k, metaPrefix); ok {
			meta[key] = vars[k]
		}
	}
	for _, k := range slices.Sorted(maps.Keys(vars)) {
		key, ok := strings.CutPrefix(k, metaJSONPrefix)
		if !ok {
			continue
		}
		var into any = &meta
		if key == "LABELS" {
			into = &labels
		}
		if err := json.Unmarshal([]byte(vars[k]), into); err != nil {
			return nil, fmt.Errorf("environment %s: want a JSON object: %w", k, err)
		}
	}
	for k, v := range podLabels {
		if k != podTemplateHash {
			labels[k] = v
		}
	}
	if l := labels[localityLabel]; l != "" && !strings.Contains(l, "/") {
		labels[localityLabel] = strings.ReplaceAll(l, ".", "/")
	}
	if len(labels) > 0 {
		meta["LABELS"] = labels
	}
	return meta, nil
}

// proxyConfig merges the ProxyConfigs of the mesh, the environment and the Pod's annotation. Each is YAML, or empty. A
// later source overrides an earlier one. The error names the source that cannot be parsed.
func proxyConfig(fromMesh, fromEnv, fromPod string) (*meshv1alpha1.ProxyConfig, error) {
	out := &meshv1alpha1.ProxyConfig{ControlPlaneAuthPolicy: meshv1alpha1.AuthenticationPolicy_MUTUAL_TLS}
	for _, part := range []struct{ where, text string }{
		{"defaultConfig of the mesh configuration", fromMesh}, {"environment PROXY_CONFIG", fromEnv},
		{"annotation " + configKey, fromPod},
	} {
		if strings.TrimSpace(part.text) == "" {
			continue
		}
		js, err := yaml.YAMLToJSON([]byte(part.text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", part.where, err)
		}
		next := &meshv1alpha1.ProxyConfig{}
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(js, next); err != nil {
			return nil, fmt.Errorf("%s: %w", part.where, err)
		}
		proto.Merge(out, next)
		// Merge ignores the zero value, which is NONE (no TLS). So the presence of the key decides.
		var keys map[string]json.RawMessage
		if err := json.Unmarshal(js, &keys); err != nil {
			return nil, fmt.Errorf("%s: %w", part.where, err)
		}
		if _, ok := keys["controlPlaneAuthPolicy"]; ok {
			out.ControlPlaneAuthPolicy = next.ControlPlaneAuthPolicy
		}
	}
	return out, nil
}

// addresses returns the IP addresses of the Pod, the primary one first. They come from INSTANCE_IP (or ISTIO_SVC_IP)
// and INSTANCE_IPS, else from the network interfaces. addresses returns an error if an entry is not an IP address, the
// interfaces cannot be read, or there is no address.
func addresses(vars map[string]string) ([]string, error) {
	var ips []string
	primary := cmp.Or(vars["INSTANCE_IP"], vars["ISTIO_SVC_IP"])
	for _, s := range append([]string{primary}, strings.Split(vars["INSTANCE_IPS"], ",")...) {
		s = strings.TrimSpace(s)
		if s == "" || slices.Contains(ips, s) {
			continue
		}
		if net.ParseIP(s) == nil {
			return nil, fmt.Errorf("INSTANCE_IP(S): %q is not an address", s)
		}
		ips = append(ips, s)
	}
	if len(ips) > 0 {
		return ips, nil
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("own addresses: %w", err)
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			ips = append(ips, n.IP.String())
		}
	}
	if len(ips) == 0 {
		return nil, errors.New("INSTANCE_IP is not set and no interface has an address")
	}
	return ips, nil
}

// clusterOf returns the node's cluster name. It is serviceCluster of the proxy's configuration, else WORKLOAD_NAME and
// the namespace, else the label app and the namespace, else istio-proxy.
func clusterOf(proxy *meshv1alpha1.ProxyConfig, meta map[string]any, ns string) string {
	if c := proxy.GetServiceCluster(); c != "" {
		return c
	}
	if w, _ := meta["WORKLOAD_NAME"].(string); w != "" {
		return w + "." + ns
	}
	if labels, _ := meta["LABELS"].(map[string]string); labels["app"] != "" {
		return labels["app"] + "." + ns
	}
	return defaultCluster
}

// localityOf returns the locality in the label topology.istio.io/locality. If that label is absent, the label
// istio-locality counts. localityOf returns nil if there is no region. The parts region, zone and subzone are separated
// by dots or slashes.
func localityOf(labels map[string]string) *corev3.Locality {
	stated, is := labels[topologyLabel]
	if !is {
		stated = labels[localityLabel]
	}
	if !strings.Contains(stated, "/") {
		stated = strings.ReplaceAll(stated, ".", "/")
	}
	region, rest, _ := strings.Cut(stated, "/")
	if region == "" {
		return nil
	}
	zone, sub, _ := strings.Cut(rest, "/")
	return &corev3.Locality{Region: region, Zone: zone, SubZone: sub}
}

// headersOf returns the headers of requests to the control plane. They come from XDS_HEADER_* and from
// ISTIO_META_CLUSTER_ID (header ClusterID).
func headersOf(vars map[string]string) map[string]string {
	h := map[string]string{}
	for k, v := range vars {
		if key, ok := strings.CutPrefix(k, headerPrefix); ok && key != "" {
			h[key] = v
		}
	}
	if id := vars[metaPrefix+"CLUSTER_ID"]; id != "" {
		h["ClusterID"] = id
	}
	return h
}

// downward parses a file of the downward API. Its rows are key="value", with the value quoted as in Go. For an absent
// file downward returns nil. It returns an error if the file cannot be read or a value is not quoted.
func downward(path string) (map[string]string, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for i, row := range strings.Split(string(b), "\n") {
		k, quoted, ok := strings.Cut(row, "=")
		if !ok {
			continue
		}
		v, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: value of %s is not quoted: %w", path, i+1, k, err)
		}
		out[k] = v
	}
	return out, nil
}

func protoMap(m proto.Message) (any, error) {
	b, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	var out any
	return out, json.Unmarshal(b, &out)
}

func toStruct(m map[string]any) (*structpb.Struct, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	s := &structpb.Struct{}
	return s, protojson.Unmarshal(b, s)
}
