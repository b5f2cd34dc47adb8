package inject

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"istio.io/api/annotation"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// defaultProxy returns the defaults of a proxy's configuration
// (https://istio.io/latest/docs/reference/config/istio.mesh.v1alpha1/#ProxyConfig). The agent has the same defaults.
func defaultProxy() *meshv1alpha1.ProxyConfig {
	return &meshv1alpha1.ProxyConfig{
		ConfigPath:               "./etc/istio/proxy",
		BinaryPath:               "/usr/local/bin/envoy",
		ClusterName:              &meshv1alpha1.ProxyConfig_ServiceCluster{ServiceCluster: "istio-proxy"},
		DrainDuration:            durationpb.New(45 * time.Second),
		TerminationDrainDuration: durationpb.New(5 * time.Second),
		DiscoveryAddress:         "istiod.istio-system.svc:15012",
		ProxyAdminPort:           15000,
		ControlPlaneAuthPolicy:   meshv1alpha1.AuthenticationPolicy_MUTUAL_TLS,
		StatNameLength:           189,
		StatusPort:               15020,
	}
}

// proxyConfig returns the configuration of one Pod's proxy. Later sources take precedence: defaults, the mesh's
// defaultConfig, the ProxyConfig of the root namespace, that of the Pod's namespace, the annotation
// proxy.istio.io/config, and the ProxyConfig that selects the Pod
// (https://istio.io/latest/docs/reference/config/networking/proxy-config/). Each source replaces whole fields, but
// variables (proxyMetadata) and runtime values are joined. The only error is an invalid annotation.
func (s *Settings) proxyConfig(pod *corev1.Pod) (*meshv1alpha1.ProxyConfig, error) {
	out := defaultProxy()
	if mesh := s.Mesh.GetDefaultConfig(); mesh != nil {
		mesh.ProtoReflect().Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			out.ProtoReflect().Set(fd, v)
			return true
		})
	}
	out = proto.CloneOf(out)
	root := s.Mesh.GetRootNamespace()
	addProxyConfig(out, s.Proxies.forNamespace(root))
	if pod.Namespace != root {
		addProxyConfig(out, s.Proxies.forNamespace(pod.Namespace))
	}
	if err := addAnnotation(out, pod.Annotations[annotation.ProxyConfig.Name]); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", annotation.ProxyConfig.Name, err)
	}
	addProxyConfig(out, s.Proxies.forWorkload(pod.Namespace, pod.Labels))
	return out, nil
}

// addAnnotation adds the fields of an annotation to a proxy's configuration. A stated zero value clears a field, and
// unknown fields are ignored. The function fails if the text is not YAML, if a field has a wrong type, or if
// checkStated fails.
func addAnnotation(out *meshv1alpha1.ProxyConfig, text string) error {
	if text == "" {
		return nil
	}
	js, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		return err
	}
	pod, stated := &meshv1alpha1.ProxyConfig{}, map[string]json.RawMessage{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(js, pod); err != nil {
		return err
	}
	if err := json.Unmarshal(js, &stated); err != nil {
		return err
	}
	if err := checkStated(pod); err != nil {
		return err
	}
	to, from := out.ProtoReflect(), pod.ProtoReflect()
	for name := range stated {
		fd := to.Descriptor().Fields().ByJSONName(name)
		if fd == nil {
			fd = to.Descriptor().Fields().ByName(protoreflect.Name(name))
		}
		switch {
		case fd == nil:
		case fd.IsMap():
			from.Get(fd).Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				to.Mutable(fd).Map().Set(k, v)
				return true
			})
		case from.Has(fd):
			to.Set(fd, from.Get(fd))
		default:
			to.Clear(fd)
		}
	}
	return nil
}

// checkStated returns an error for all values with which agents do not start (istio: pkg/config/validation/agent).
func checkStated(c *meshv1alpha1.ProxyConfig) error {
	var bad []error
	if address := c.GetDiscoveryAddress(); address != "" {
		host, port, err := net.SplitHostPort(address)
		if _, wrong := strconv.ParseUint(port, 10, 16); err != nil || host == "" || wrong != nil {
			bad = append(bad, fmt.Errorf("discoveryAddress %.100q: want HOST:PORT", address))
		}
	}
	for name, port := range map[string]int32{"proxyAdminPort": c.GetProxyAdminPort(), "statusPort": c.GetStatusPort()} {
		if port < 0 || port > math.MaxUint16 {
			bad = append(bad, fmt.Errorf("%s %d: want a port", name, port))
		}
	}
	for name, d := range map[string]*durationpb.Duration{"drainDuration": c.GetDrainDuration(),
		"terminationDrainDuration": c.GetTerminationDrainDuration()} {
		if d.AsDuration() < 0 {
			bad = append(bad, fmt.Errorf("%s %v: want 0s or more", name, d.AsDuration()))
		}
	}
	if n := c.GetConcurrency().GetValue(); n < 0 {
		bad = append(bad, fmt.Errorf("concurrency %d: want 0 or more", n))
	}
	slices.SortFunc(bad, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(bad...)
}

// withoutDefaults returns a copy of the configuration without the fields that have their default value.
func withoutDefaults(c *meshv1alpha1.ProxyConfig) *meshv1alpha1.ProxyConfig {
	out := proto.CloneOf(c)
	to := out.ProtoReflect()
	defaultProxy().ProtoReflect().Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if to.Has(fd) && to.Get(fd).Equal(v) {
			to.Clear(fd)
		}
		return true
	})
	return out
}

// statusPort returns the agent's port for probes and metrics of the application, or 0 if the agent has no such port.
// The Pod's annotation takes precedence over the proxy's configuration.
func statusPort(annotations map[string]string, proxy *meshv1alpha1.ProxyConfig) int32 {
	if n, err := strconv.ParseUint(strings.TrimSpace(annotations[annotation.SidecarStatusPort.Name]), 10, 16); err == nil {
		return int32(n)
	}
	return proxy.GetStatusPort()
}
