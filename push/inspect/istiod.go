package inspect

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/store/cut"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// The pages in this file imitate istiod's pages (istio: pilot/pkg/xds/debug.go). They have only the fields that
// istioctl and Kiali read.

// Cluster is a Kubernetes cluster whose objects are read and stored.
type Cluster struct {
	Name   string
	Secret string // namespace/name of the Secret with the kubeconfig; empty: the config cluster
	Read   bool   // the store contains the complete state of the cluster
}

// clusterz serves /debug/clusterz, which istioctl remote-clusters prints (istio: pkg/cluster/debug.go, DebugInfo).
func clusterz(c Config, _ *http.Request) (any, error) {
	type cluster struct {
		ID     string `json:"id"`
		Secret string `json:"secretName"`
		Status string `json:"syncStatus"`
	}
	all := []cluster{}
	if c.Clusters == nil {
		return all, nil
	}
	for _, one := range c.Clusters() {
		status := "syncing"
		if one.Read {
			status = "synced"
		}
		all = append(all, cluster{one.Name, one.Secret, status})
	}
	return all, nil
}

// errNoSnapshot is the response of a process that has no snapshot of the store. A process without role xds never has
// one.
var errNoSnapshot = httpError{http.StatusServiceUnavailable, "there is no complete snapshot yet"}

// registered is one host of the mesh, with the fields of istiod's model.Service.
type registered struct {
	Attributes   attributes       `json:"Attributes"`
	Ports        []registeredPort `json:"ports"`
	Created      time.Time        `json:"creationTime,omitzero"`
	Host         string           `json:"hostname"`
	VIPs         addresses        `json:"clusterVIPs"`
	Resolution   int              `json:"Resolution"`
	MeshExternal bool             `json:"MeshExternal"`
}

// attributes has the fields of istiod's model.ServiceAttributes.
type attributes struct {
	Registry  string            `json:"ServiceRegistry"`
	Name      string            `json:"Name"`
	Namespace string            `json:"Namespace"`
	ExportTo  map[string]bool   `json:"ExportTo,omitempty"`
	Selector  map[string]string `json:"LabelSelectors,omitempty"`
}

// registeredPort has the fields of istiod's model.Port.
type registeredPort struct {
	Name     string `json:"name,omitempty"`
	Port     uint32 `json:"port"`
	Protocol string `json:"protocol,omitempty"`
}

// addresses has the fields of istiod's model.AddressMap.
type addresses struct {
	Addresses map[string][]string `json:"Addresses,omitempty"` // by name of the cluster
}

// resolutions has istiod's numbers of resolutions (istio: pilot/pkg/model/service.go, Resolution).
var resolutions = map[model.Resolution]int{
	model.Resolution_RESOLUTION_EDS:             0,
	model.Resolution_RESOLUTION_DNS:             1,
	model.Resolution_RESOLUTION_NONE:            2,
	model.Resolution_RESOLUTION_DNS_ROUND_ROBIN: 3,
	model.Resolution_RESOLUTION_DYNAMIC_DNS:     5,
}

// registryz serves /debug/registryz: the hosts of all Services, then the hosts of all ServiceEntries.
func registryz(c Config, _ *http.Request) (any, error) {
	s := c.Snapshot()
	if s == nil {
		return nil, errNoSnapshot
	}
	own := "" // name of the config cluster
	if c.Clusters != nil {
		own = c.Clusters()[0].Name
	}
	all := []registered{}
	for _, of := range []struct {
		kind     model.Kind
		registry string
	}{{model.KindService, "Kubernetes"}, {model.KindServiceEntry, "External"}} {
		for r := range s.All(of.kind) {
			all = append(all, registeredHosts(r.(*model.Service), of.registry, own)...)
		}
	}
	return all, nil
}

// registeredHosts returns an element for each host of a service. The argument own is the name of the config cluster.
func registeredHosts(s *model.Service, registry, own string) (all []registered) {
	spec := s.Spec
	one := registered{
		Attributes: attributes{
			Registry: registry, Name: s.Key.Name, Namespace: s.Key.Namespace, Selector: spec.GetSelector()},
		Resolution: resolutions[spec.GetResolution()], MeshExternal: spec.GetExternal(), Ports: []registeredPort{}}
	if s.Created != 0 {
		one.Created = time.Unix(s.Created, 0).UTC()
	}
	for _, namespace := range spec.GetExportTo() {
		if one.Attributes.ExportTo == nil {
			one.Attributes.ExportTo = map[string]bool{}
		}
		one.Attributes.ExportTo[namespace] = true
	}
	for _, p := range spec.GetPorts() {
		one.Ports = append(one.Ports, registeredPort{p.GetName(), p.GetNumber(), protocolName(p.GetProtocol())})
	}
	if list := spec.GetAddresses(); len(list) > 0 {
		one.VIPs.Addresses = map[string][]string{cmp.Or(s.Key.Origin.Cluster(), own): list}
	}
	for _, host := range spec.GetHosts() {
		one.Host = host
		all = append(all, one)
	}
	return all
}

// protocolName returns istiod's name of a protocol.
func protocolName(p model.Protocol) string {
	switch p {
	case model.Protocol_PROTOCOL_AUTO:
		return "UnsupportedProtocol" // detected by the proxy
	case model.Protocol_PROTOCOL_GRPC_WEB:
		return "GRPC-Web"
	case model.Protocol_PROTOCOL_MONGO:
		return "Mongo"
	case model.Protocol_PROTOCOL_HTTP, model.Protocol_PROTOCOL_HTTP2, model.Protocol_PROTOCOL_GRPC,
		model.Protocol_PROTOCOL_HTTPS, model.Protocol_PROTOCOL_TLS, model.Protocol_PROTOCOL_TCP, model.Protocol_PROTOCOL_UDP:
	}
	return strings.TrimPrefix(p.String(), "PROTOCOL_")
}

// istioKinds maps each kind that /debug/configz shows to its apiVersion. Records of these kinds contain Istio's own
// messages.
var istioKinds = map[model.Kind]string{
	model.KindVirtualService:   "networking.istio.io/v1",
	model.KindDestinationRule:  "networking.istio.io/v1",
	model.KindSidecar:          "networking.istio.io/v1",
	model.KindGateway:          "networking.istio.io/v1",
	model.KindWorkloadGroup:    "networking.istio.io/v1",
	model.KindEnvoyFilter:      "networking.istio.io/v1alpha3",
	model.KindTelemetry:        "telemetry.istio.io/v1",
	model.KindTrafficExtension: "extensions.istio.io/v1alpha1",
	model.KindProxyConfig:      "networking.istio.io/v1beta1",
}

// configz serves /debug/configz: the objects of istioKinds in the form in which they are stored. Other objects, such as
// policies, are left out. ServiceEntries are on the page of registryz.
func configz(c Config, _ *http.Request) (any, error) {
	s := c.Snapshot()
	if s == nil {
		return nil, errNoSnapshot
	}
	all := []any{}
	for _, kind := range model.Kinds() {
		version := istioKinds[kind]
		if version == "" {
			continue
		}
		objects, err := configs(s, kind, version)
		if err != nil {
			return nil, err
		}
		all = append(all, objects...)
	}
	return all, nil
}

// configs returns the objects of one kind as Kubernetes objects. Credentials are replaced by cut.Cut.
func configs(s *mirror.Snapshot, kind model.Kind, version string) (all []any, err error) {
	for r := range s.All(kind) {
		body := proto.Clone(r.Body())
		cut.Message(body)
		spec, err := protojson.Marshal(body)
		if err != nil {
			return nil, err
		}
		meta := map[string]any{"name": r.Meta().Key.Name, "namespace": r.Meta().Key.Namespace}
		if at := r.Meta().Created; at != 0 {
			meta["creationTimestamp"] = time.Unix(at, 0).UTC()
		}
		all = append(all, map[string]any{"apiVersion": version, "kind": kind.String(), "metadata": meta, "spec": json.RawMessage(spec)})
	}
	return slices.Clip(all), nil
}

// mesh serves /debug/mesh: the mesh configuration. Credentials are replaced by cut.Cut.
func mesh(c Config, _ *http.Request) (any, error) {
	s := c.Snapshot()
	if s == nil {
		return nil, errNoSnapshot
	}
	public := proto.Clone(s.Mesh().Spec)
	cut.Message(public)
	raw, err := protojson.Marshal(public)
	return json.RawMessage(raw), err
}
