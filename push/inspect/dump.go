package inspect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"navarch.io/navarch/push/xds"
)

// These are prefixes of the details in a resource's error state. WithheldDetails means that the resource is withheld
// from all proxies with the same configuration (a view), or that the proxy requests a Secret and may not have it.
// RefusedDetails means that the proxy itself has refused the resource.
const (
	WithheldDetails = "withheld: "
	RefusedDetails  = "refused: "
)

// Dump returns the resources of one proxy in the form of Envoy's /config_dump, one element for each section. The
// parameter proxy is the proxy's name.namespace or its node ID. The first section is the bootstrap, with only the node.
// The further sections are clusters, endpoints, listeners, routes, secrets without their private parts, and
// configurations of filters. These sections also list refused and withheld resources, with an error state. Other parts
// of the bootstrap, and static resources, are only in Envoy's own dump.
//
// StatusCode(err) is 404 if the proxy is not connected to this replica. It is 400 if several proxies have the name, and
// 500 if a resource cannot be encoded.
func Dump(c Config, proxy string) ([]*discoveryv3.Resource, error) {
	st, err := streamNamed(c, proxy)
	if err != nil {
		return nil, err
	}
	var all []*discoveryv3.Resource
	err = st.sections(nil, func(section proto.Message) error {
		packed, err := anypb.New(section)
		all = append(all, &discoveryv3.Resource{Resource: packed})
		return err
	})
	return all, err
}

// configDump serves /debug/config_dump: the result of Dump as an envoy.admin.v3.ConfigDump in JSON, as Envoy's admin
// interface prints it.
func configDump(c Config, r *http.Request) (any, error) {
	st, err := streamOf(c, r)
	if err != nil {
		return nil, err
	}
	var wanted []xds.Type
	for noun := range strings.SplitSeq(r.URL.Query().Get("types"), ",") {
		if noun == "" {
			continue
		}
		t := xds.ParseNoun(noun)
		if t == xds.Unknown {
			return nil, httpError{http.StatusBadRequest, fmt.Sprintf("types: unknown type %q", noun)}
		}
		wanted = append(wanted, t)
	}
	return dumped{st, wanted}, nil
}

// protoJSON encodes a message as proto JSON with proto field names.
func protoJSON(m proto.Message) (json.RawMessage, error) {
	raw, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return nil, err
	}
	var stable bytes.Buffer // protojson varies its white space on purpose
	if err := json.Compact(&stable, raw); err != nil {
		return nil, err
	}
	return stable.Bytes(), nil
}

// ClosingMetadata is the field of the node's metadata in a dump with the policies that select the proxy and cannot be
// enforced, as a list of "Kind namespace/name". Proxies themselves do not state it.
const ClosingMetadata = "NAVARCH_CLOSED_BY"

// bootstrap returns the section that istioctl reads first when it prints all sections. The section has the known part
// of the proxy's bootstrap: the node ID, the version of the agent, and the service account of the verified identity. It
// also has ClosingMetadata and PortsMetadata.
func (st Stream) bootstrap() *adminv3.BootstrapConfigDump {
	node := &corev3.Node{Id: st.Node}
	fields := map[string]*structpb.Value{}
	if st.Version != "" {
		fields["ISTIO_VERSION"] = structpb.NewStringValue(st.Version)
	}
	if _, account, is := strings.Cut(st.Identity, "/sa/"); is {
		fields["SERVICE_ACCOUNT"] = structpb.NewStringValue(account)
	}
	if st.Closing != nil {
		var closing []*structpb.Value
		for _, policy := range st.Closing() {
			closing = append(closing, structpb.NewStringValue(policy))
		}
		if len(closing) > 0 {
			fields[ClosingMetadata] = structpb.NewListValue(&structpb.ListValue{Values: closing})
		}
	}
	if st.Ports != nil {
		if all := st.Ports(); len(all) > 0 {
			fields[PortsMetadata] = portsValue(all)
		}
	}
	if len(fields) > 0 {
		node.Metadata = &structpb.Struct{Fields: fields}
	}
	return &adminv3.BootstrapConfigDump{Bootstrap: &bootstrapv3.Bootstrap{Node: node}}
}

// sections calls f with the section of each wanted type. Without wanted types, it calls f with the bootstrap and the
// sections of all types. Empty sections are included, because readers expect them. An error of f ends the calls.
func (st Stream) sections(wanted []xds.Type, f func(proto.Message) error) error {
	if len(wanted) == 0 {
		if err := f(st.bootstrap()); err != nil {
			return fmt.Errorf("dump of %s: %w", st.Proxy, err)
		}
	}
	held := st.Held()
	for t := range xds.NumTypes {
		if len(wanted) > 0 && !slices.Contains(wanted, t) {
			continue
		}
		entries, err := st.dumpEntries(t, held[t])
		if err == nil {
			err = f(sectionOf(t, entries))
		}
		if err != nil {
			return fmt.Errorf("dump of %s: %w", st.Proxy, err)
		}
	}
	return nil
}

// dumpEntry is one resource of a dump. For an accepted resource, the status is not set. Envoy's own dump does not state
// the status either, and istioctl compares Envoy's dump with this one.
type dumpEntry struct {
	name, version string
	body          *anypb.Any                  // nil: the proxy does not have the resource
	failed        *adminv3.UpdateFailureState // nil: no version is refused or withheld
	status        adminv3.ClientResourceStatus
}

// dumpEntries returns the resources that a proxy has, followed by the resources that it lacks because they were refused
// or are withheld.
func (st Stream) dumpEntries(t xds.Type, held []*xds.Resource) (all []dumpEntry, err error) {
	failures := st.failures(t)
	if t == xds.Secret {
		st.addLacks(failures, held)
	}
	for _, r := range held {
		body, err := asAny(r)
		if err != nil {
			return nil, err
		}
		all = append(all, dumpEntry{name: r.Name, version: r.Version, body: body})
	}
	for _, name := range sortedNames(failures) {
		at := slices.IndexFunc(all, func(e dumpEntry) bool { return e.name == name })
		if at < 0 {
			at, all = len(all), append(all, dumpEntry{name: name})
		}
		all[at].status = adminv3.ClientResourceStatus_NACKED
		if all[at].failed, err = st.failure(t, name, failures[name]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// addLacks adds to failures the Secrets that a proxy requests and does not hold.
func (st Stream) addLacks(failures map[string]failure, held []*xds.Resource) {
	if st.Lacks == nil {
		return
	}
	lacks := st.Lacks()
	for _, r := range held {
		delete(lacks, r.Name)
	}
	for name, why := range lacks {
		f := failures[name]
		f.details = append(f.details, WithheldDetails+why+"; Pods that have an earlier version still use it, new Pods fail")
		failures[name] = f
	}
}

// failure states why a proxy lacks a version of a resource.
type failure struct {
	version string
	details []string
	last    time.Time
}

// failures returns the failures of one type, by name. A refusal whose resource is not known yet is left out.
func (st Stream) failures(t xds.Type) map[string]failure {
	all := map[string]failure{}
	add := func(name, version, details string, objects []string, last time.Time) {
		if name == "" {
			return
		}
		if len(objects) > 0 {
			details += " (made by " + strings.Join(objects, ", ") + ")"
		}
		f := all[name]
		f.version, f.details = version, append(f.details, details)
		if last.After(f.last) {
			f.last = last
		}
		all[name] = f
	}
	for _, w := range st.Types[t].Withheld {
		details := fmt.Sprintf("%sthis version is sent to no proxy of this view, because %d distinct identities refused it,"+
			" from %s to %s: %s", WithheldDetails, w.RefusedBy,
			w.First.UTC().Format(time.RFC3339), w.Last.UTC().Format(time.RFC3339), refusalText(w.Text))
		add(w.Name, w.Version, details, w.Objects, w.Last)
	}
	for _, r := range st.Types[t].Refused {
		add(r.Name, r.Version, RefusedDetails+refusalText(r.Text), r.Objects, r.Last)
	}
	return all
}

// refusalText returns the error of a proxy, or a text that states that the error is unknown.
func refusalText(text string) string {
	if text == "" {
		return "the proxy's error text is not known"
	}
	return text
}

// sortedNames returns the names of failures, sorted.
func sortedNames(failures map[string]failure) []string {
	names := make([]string, 0, len(failures))
	for name := range failures {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// failure encodes a failure. The failed configuration is the resource of the failed version, if this version is still
// planned. In all other cases it is a resource with only the name, because some sections have no other field for the
// name.
func (st Stream) failure(t xds.Type, name string, f failure) (*adminv3.UpdateFailureState, error) {
	out := &adminv3.UpdateFailureState{Details: strings.Join(f.details, "; "), VersionInfo: f.version}
	if !f.last.IsZero() {
		out.LastUpdateAttempt = timestamppb.New(f.last)
	}
	var err error
	if st.Planned != nil {
		if r := st.Planned(t, name); r != nil && r.Version == f.version {
			out.FailedConfiguration, err = asAny(r)
			return out, err
		}
	}
	out.FailedConfiguration, err = anypb.New(nameOnly(t, name))
	return out, err
}

// nameOnly returns a message of a type with a name and no other field.
func nameOnly(t xds.Type, name string) proto.Message {
	switch t {
	case xds.Cluster:
		return &clusterv3.Cluster{Name: name}
	case xds.Endpoint:
		return &endpointv3.ClusterLoadAssignment{ClusterName: name}
	case xds.Listener:
		return &listenerv3.Listener{Name: name}
	case xds.Route:
		return &routev3.RouteConfiguration{Name: name}
	case xds.Extension:
		return &corev3.TypedExtensionConfig{Name: name}
	default:
		return &tlsv3.Secret{Name: name}
	}
}

// asAny returns a resource as an Any, without its confidential parts.
func asAny(r *xds.Resource) (*anypb.Any, error) {
	if r.Type != xds.Secret && !r.Confidential {
		return &anypb.Any{TypeUrl: r.Type.URL(), Value: r.Body()}, nil
	}
	m, err := Message(r)
	if err != nil {
		return nil, err
	}
	return anypb.New(m)
}

// sectionOf returns the message of Envoy's dump for one type
// (https://www.envoyproxy.io/docs/envoy/latest/api-v3/admin/v3/config_dump_shared.proto).
func sectionOf(t xds.Type, entries []dumpEntry) proto.Message {
	switch t {
	case xds.Cluster:
		out := &adminv3.ClustersConfigDump{}
		for _, e := range entries {
			out.DynamicActiveClusters = append(out.DynamicActiveClusters, &adminv3.ClustersConfigDump_DynamicCluster{
				VersionInfo: e.version, Cluster: e.body, ErrorState: e.failed, ClientStatus: e.status})
		}
		return out
	case xds.Endpoint:
		out := &adminv3.EndpointsConfigDump{}
		for _, e := range entries {
			out.DynamicEndpointConfigs = append(out.DynamicEndpointConfigs, &adminv3.EndpointsConfigDump_DynamicEndpointConfig{
				VersionInfo: e.version, EndpointConfig: e.body, ErrorState: e.failed, ClientStatus: e.status})
		}
		return out
	case xds.Listener:
		out := &adminv3.ListenersConfigDump{}
		for _, e := range entries {
			one := &adminv3.ListenersConfigDump_DynamicListener{Name: e.name, ErrorState: e.failed, ClientStatus: e.status}
			if e.body != nil {
				one.ActiveState = &adminv3.ListenersConfigDump_DynamicListenerState{VersionInfo: e.version, Listener: e.body}
			}
			out.DynamicListeners = append(out.DynamicListeners, one)
		}
		return out
	case xds.Route:
		out := &adminv3.RoutesConfigDump{}
		for _, e := range entries {
			out.DynamicRouteConfigs = append(out.DynamicRouteConfigs, &adminv3.RoutesConfigDump_DynamicRouteConfig{
				VersionInfo: e.version, RouteConfig: e.body, ErrorState: e.failed, ClientStatus: e.status})
		}
		return out
	case xds.Extension:
		out := &adminv3.EcdsConfigDump{}
		for _, e := range entries {
			out.EcdsFilters = append(out.EcdsFilters, &adminv3.EcdsConfigDump_EcdsFilterConfig{
				VersionInfo: e.version, EcdsFilter: e.body, ErrorState: e.failed, ClientStatus: e.status})
		}
		return out
	case xds.Secret:
	}
	out := &adminv3.SecretsConfigDump{}
	for _, e := range entries {
		one := &adminv3.SecretsConfigDump_DynamicSecret{Name: e.name, VersionInfo: e.version, Secret: e.body,
			ErrorState: e.failed, ClientStatus: e.status}
		if e.body == nil { // listed like a Secret for which Envoy waits, because readers require the field Secret
			one.Secret = e.failed.GetFailedConfiguration()
			out.DynamicWarmingSecrets = append(out.DynamicWarmingSecrets, one)
			continue
		}
		out.DynamicActiveSecrets = append(out.DynamicActiveSecrets, one)
	}
	return out
}
