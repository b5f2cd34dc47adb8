// Package normal turns raw API objects into records: defaulted, validated, resolved, in canonical form, and says what is
// wrong with them.
//
// Owns: nothing; all functions are pure.  Reads: store/object, store/model.  Never: sockets, files, clocks, Envoy types.
//
// Fetched key sets are part of the record of the RequestAuthentication that names them, as resolved addresses are part
// of NetworkGateways. So an edit of keys is an edit of the policies that read them, and touches their listeners alone.
// No plan waits for a server.
//
// A private key is no part of its record. Normalisation returns it beside the record (ingest.UnsealedRecord), which is
// written once the key is sealed. Other records do not wait for a key that cannot be sealed.
package normal

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal/fields"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
)

// Options is what every object's normal form depends on beside the mesh configuration.
type Options struct {
	Domain          string // DNS suffix of the cluster; default cluster.local
	Cluster         string // what the config cluster is called (CLUSTER_ID of its proxies); default Kubernetes
	Network         string // of endpoints that nothing else gives a network; usually empty
	Revision        string // mesh configuration is read from ConfigMap istio-<Revision>; empty: istio
	SystemNamespace string // where that ConfigMap lives; default istio-system
	// signers of Kubernetes sign for workloads, and are known by the certificates that name them (caCertificates, certSigners)
	Signers bool
	// Automatic: hosts of ServiceEntries that state no address have automatic ones, of these ranges (PILOT_ENABLE_IP_AUTOALLOCATE); empty: they have none.
	Automatic []netip.Prefix
	// KeysOfCluster: keys of RequestAuthentications are fetched from Services and Pods of the clusters, too (--jwks-cluster).
	KeysOfCluster bool
	// ResolveGateways: names that gateways of networks have for addresses are resolved (RESOLVE_HOSTNAME_GATEWAYS).
	ResolveGateways bool
	// MergedListeners: TCP ports of all headless Services have one listener each
	// (PILOT_ENABLE_HEADLESS_FILTER_CHAIN_LISTENER), and not those alone whose annotation says so. LocalNames: names of
	// headless Services have the endpoints of the proxy's own cluster alone (ENABLE_MULTICLUSTER_HEADLESS=false).
	MergedListeners, LocalNames bool
	Isolation                   Isolation // of tenants
}

// Normalizer holds Options with their defaults. It is immutable.
type Normalizer struct{ Options }

// New fills in the defaults.
func New(o Options) *Normalizer {
	o.Domain = cmp.Or(strings.ToLower(o.Domain), "cluster.local")
	o.Cluster = cmp.Or(o.Cluster, "Kubernetes")
	o.SystemNamespace = cmp.Or(o.SystemNamespace, "istio-system")
	return &Normalizer{o}
}

// Lookup is what objects are joined with, each with those of its own origin. Answers are immutable; nil where there is no such thing.
type Lookup interface {
	Pod(id object.ID) *Pod
	PodAt(id object.ID) *Pod // that has an address (PodAtID)
	Node(id object.ID) *Node
	Nodes(of origin.Origin) iter.Seq[*Node] // all of an origin, in any order
	Namespace(id object.ID) *Namespace
	Role(id object.ID) *Role        // a Role or a ClusterRole
	Mesh() *meshv1.MeshConfig       // never nil
	Networks() *meshv1.MeshNetworks // nil: none
	// Automatic are the automatic addresses of a ServiceEntry (AutomaticID), by host.
	Automatic(id object.ID) map[string][]string
	AutomaticAt(id object.ID) object.ID // whose an automatic address is (AutomaticAtID, AutomaticID); zero: nobody's
	Resolved(id object.ID) []string     // the addresses of a name (ResolvedID)
	Keys(id object.ID) Keys             // what is known of the keys at a source (KeysID)
	Owners
}

// Result is one object, normalised.
type Result struct {
	Records  []model.Record
	Problems []object.Problem
	// Spoiled: the object has an error. Records is empty, and what was good before stands.
	Spoiled bool
	// Refused are those of the problems for which Istio's webhook refuses an object that applies all the same where it is there already, as in
	// istiod, which does not look at it again: so does ours. They are warnings among Problems too.
	Refused []object.Problem
	// Closed is, for a spoiled policy, the record that holds while there is no earlier good version: what it selects is
	// closed.
	Closed model.Record
	// Refs are the Pods, their addresses (PodAtID), Nodes, Namespaces, Roles, automatic addresses, names and owners (HostID) that were looked up, whether they are there or not, and AllNodes
	// where all were: when one of them changes, this object is normalised again.
	Refs []object.ID
	// Private is the private key of the one record, a Secret's, which is without it: it has to be sealed before the record
	// goes anywhere. nil: the record needs none.
	Private model.PrivateKey
	// UsesMesh: the result depends on the mesh configuration.
	UsesMesh bool
}

type kindKey struct{ group, kind string }

// normalise is how one kind becomes records; it reports through r.
type normalise func(n *Normalizer, r *report, obj *object.Object, ctx Lookup) []model.Record

var istioNetworkingVersions = []string{"v1", "v1beta1", "v1alpha3"}
var istioSecurityVersions = []string{"v1", "v1beta1"}
var istioTelemetryVersions = []string{"v1", "v1alpha1"}

// kinds is everything that is acted on. fn is nil for kinds that are only joined with (their Parse functions read them)
// or accepted for later. Those of Kubernetes come from every cluster, Istio's are configuration, which comes from the config cluster
// alone (see configuration).
var kinds = map[kindKey]struct {
	versions []string
	fn       normalise
}{
	{"", "Service"}:                                {[]string{"v1"}, serviceRecords},
	{model.GroupDiscovery, "EndpointSlice"}:        {[]string{"v1"}, endpointSliceRecords},
	{"", "Pod"}:                                    {[]string{"v1"}, podRecords},
	{"", "Node"}:                                   {[]string{"v1"}, nil},
	{"", "Namespace"}:                              {[]string{"v1"}, namespaceRecords},
	{"", "Secret"}:                                 {[]string{"v1"}, secretRecords},
	{"", "ServiceAccount"}:                         {[]string{"v1"}, serviceAccountRecords},
	{"", "ConfigMap"}:                              {[]string{"v1"}, configMapRecords},
	{model.GroupNetworking, "VirtualService"}:      {istioNetworkingVersions, virtualServiceRecords},
	{model.GroupNetworking, "DestinationRule"}:     {istioNetworkingVersions, destinationRuleRecords},
	{model.GroupNetworking, "ServiceEntry"}:        {istioNetworkingVersions, serviceEntryRecords},
	{model.GroupNetworking, "WorkloadEntry"}:       {istioNetworkingVersions, workloadEntryRecords},
	{model.GroupNetworking, "WorkloadGroup"}:       {istioNetworkingVersions, workloadGroupRecords},
	{model.GroupNetworking, "Sidecar"}:             {istioNetworkingVersions, sidecarRecords},
	{model.GroupNetworking, "EnvoyFilter"}:         {istioNetworkingVersions, envoyFilterRecords},
	{model.GroupNetworking, "Gateway"}:             {istioNetworkingVersions, gatewayRecords},
	{model.GroupNetworking, "ProxyConfig"}:         {istioNetworkingVersions, proxyConfigRecords},
	{model.GroupRBAC, "Role"}:                      {[]string{"v1"}, nil},
	{model.GroupRBAC, "ClusterRole"}:               {[]string{"v1"}, nil},
	{model.GroupRBAC, "RoleBinding"}:               {[]string{"v1"}, bindingRecords},
	{model.GroupRBAC, "ClusterRoleBinding"}:        {[]string{"v1"}, bindingRecords},
	{model.GroupSecurity, "PeerAuthentication"}:    {istioSecurityVersions, peerAuthenticationRecords},
	{model.GroupSecurity, "AuthorizationPolicy"}:   {istioSecurityVersions, authorizationPolicyRecords},
	{model.GroupSecurity, "RequestAuthentication"}: {istioSecurityVersions, requestAuthenticationRecords},
	{model.GroupExtensions, "WasmPlugin"}:          {[]string{"v1alpha1"}, wasmPluginRecords},
	{model.GroupExtensions, "TrafficExtension"}:    {[]string{"v1alpha1"}, trafficExtensionRecords},
	{DeniedID.Group, DeniedID.Kind}:                {[]string{deniedVersion}, deniedRecords},
	{model.GroupTelemetry, "Telemetry"}:            {istioTelemetryVersions, telemetryRecords},
}

// Served says whether an object is of a kind and version that this package reads.
func Served(obj *object.Object) bool {
	return slices.Contains(kinds[kindKey{obj.ID.Group, obj.ID.Kind}].versions, obj.Version)
}

// Object normalises one object. Kinds that are only joined with (Node, Namespace, Role, ConfigMap) give no records here: see
// ParseNode and its like.
func (n *Normalizer) Object(obj *object.Object, ctx Lookup) Result {
	r := &report{id: obj.ID, location: obj.Location}
	kind, known := kinds[kindKey{obj.ID.Group, obj.ID.Kind}]
	switch {
	case !known:
		r.unknown(obj.ID)
		return r.result(nil)
	case !Served(obj):
		r.unsupportedf("apiVersion", "version %q is not served: want one of %s", obj.Version, strings.Join(kind.versions, ", "))
	}
	if n.misplaced(r, obj.ID) {
		return r.result(nil)
	}
	policy := IsPolicy(obj.ID)
	if kind.fn == nil && !r.spoiled {
		return Result{}
	}
	r.names(obj)
	var records []model.Record
	if !r.spoiled {
		records = kind.fn(n, r, obj, ctx)
	}
	if !r.spoiled {
		records = n.isolated(r, obj, records, ctx)
	}
	result := r.result(records)
	if result.Spoiled && policy {
		result.Closed = n.Closed(obj, ctx.Mesh().GetRootNamespace())
		result.UsesMesh = true
	}
	return result
}

// SourceObject is the object that a record is made from: the inverse of the keys that Object gives to records. The zero ID for
// the Mesh record and the gateways of meshNetworks.
func SourceObject(key model.Key) object.ID {
	id := object.ID{Origin: key.Origin, Namespace: key.Namespace, Name: key.Name}
	id.Group, id.Kind = key.Kind.Object()
	switch key.Kind {
	case model.KindMesh:
		return object.ID{}
	case model.KindNetworkGateways:
		if key.Namespace == "" { // meshNetworks
			return object.ID{}
		}
	case model.KindEndpoints:
		if rest, ok := strings.CutPrefix(key.Name, model.ServiceEntryPrefix); ok {
			id.Group, id.Kind = model.KindServiceEntry.Object()
			id.Name, _, _ = strings.Cut(rest, ":")
		} else if rest, ok := strings.CutPrefix(key.Name, externalNamePrefix); ok {
			id.Group, id.Kind = model.KindService.Object()
			id.Name = rest
		} else {
			id.Name, _, _ = strings.Cut(id.Name, ":")
		}
	case model.KindPeerAuthentication, model.KindAuthorizationPolicy, model.KindRequestAuthentication:
		if key.Name == model.DeniedName {
			return DeniedID
		}
	case model.KindWorkload:
		if rest, ok := strings.CutPrefix(key.Name, model.WorkloadEntryPrefix); ok {
			id.Group, id.Kind, id.Name = model.GroupNetworking, "WorkloadEntry", rest
		}
	case model.KindSecretReader:
		if key.Namespace == "" {
			id.Kind = "ClusterRoleBinding"
		}
	default: // the object has the record's namespace and name
	}
	return id
}

// externalNamePrefix begins the names of the Endpoints of a Service of type ExternalName, as model.ServiceEntryPrefix those of a ServiceEntry. What follows
// another colon tells the parts of one object apart; no Kubernetes name has a colon in it.
const externalNamePrefix = "externalname:"

// report collects what is wrong with one object.
type report struct {
	id       object.ID
	location string
	problems []object.Problem
	refused  []object.Problem
	spoiled  bool
	refs     []object.ID
	mesh     bool
	private  model.PrivateKey
}

// maxProblems bounds what one object can fill the list of problems with.
const maxProblems = 50

// errorf reports what spoils the object, and is Invalid; the other methods say what else it is.
func (r *report) errorf(field, format string, args ...any) {
	r.spoil(problem.Invalid, field, format, args...)
}

func (r *report) requiredf(field, format string, args ...any) {
	r.spoil(problem.Required, field, format, args...)
}

func (r *report) duplicatef(field, format string, args ...any) {
	r.spoil(problem.Duplicate, field, format, args...)
}

func (r *report) unsupportedf(field, format string, args ...any) {
	r.spoil(problem.NotSupported, field, format, args...)
}

func (r *report) spoil(code problem.Code, field, format string, args ...any) {
	r.spoiled = true
	r.add(r.problem(code, problem.Error, field, format, args...))
}

// warnf reports what is wrong with an object that applies all the same.
func (r *report) warnf(code problem.Code, field, format string, args ...any) {
	r.add(r.problem(code, problem.Warning, field, format, args...))
}

// analysef is warnf of what Istio's analyzers have a code for.
func (r *report) analysef(analyzer problem.Analyzer, code problem.Code, field, format string, args ...any) {
	one := r.problem(code, problem.Warning, field, format, args...)
	one.Analyzer = analyzer
	r.add(one)
}

// refusef reports what an object is refused for by the webhook, and what spoils nothing where it is there all the same (Result.Refused).
func (r *report) refusef(code problem.Code, field, format string, args ...any) {
	r.add(r.problem(code, problem.Warning, field, format, args...))
	if len(r.refused) < maxProblems {
		r.refused = append(r.refused, r.problem(code, problem.Warning, field, format, args...))
	}
}

func (r *report) add(one object.Problem) {
	if len(r.problems) < maxProblems {
		r.problems = append(r.problems, one)
		return
	}
	for i := len(r.problems) - 1; i >= 0 && one.Severity == problem.Error; i-- { // what spoils an object is not hidden by what does not
		if r.problems[i].Severity == problem.Warning {
			r.problems[i] = one
			return
		}
	}
}

func (r *report) problem(code problem.Code, severity problem.Severity, field, format string, args ...any) object.Problem {
	return object.Problem{ID: r.id, Location: r.location, Field: field, Code: code, Severity: severity, Message: fmt.Sprintf(format, args...)}
}

func (r *report) ref(id object.ID) {
	if !slices.Contains(r.refs[max(0, len(r.refs)-4):], id) { // mostly the last few; a repetition does no harm
		r.refs = append(r.refs, id)
	}
}

func (r *report) result(records []model.Record) Result {
	if r.spoiled {
		records, r.private = nil, nil
	}
	return Result{Records: records, Problems: r.problems, Spoiled: r.spoiled, Refused: r.refused, Refs: r.refs, UsesMesh: r.mesh,
		Private: r.private}
}

// unacted reports a field that is set and not acted on.
func (r *report) unacted(at string, row *fields.Row) {
	r.warnf(problem.NotSupported, at, "is not acted on by this version: %s", row.Text)
}

// record makes one record; a body that does not encode (invalid UTF-8 is the one way) spoils the object.
func (r *report) record(kind model.Kind, obj *object.Object, name string, body proto.Message) []model.Record {
	created := int64(0)
	if !obj.Created.IsZero() {
		created = obj.Created.Unix()
	}
	record, err := model.New(model.Key{Kind: kind, Origin: obj.ID.Origin, Namespace: obj.ID.Namespace, Name: name}, created, body)
	if err != nil {
		r.errorf("", "%v", err)
		return nil
	}
	return []model.Record{record}
}

// CompareProblems orders problems by object, then field, then message.
func CompareProblems(a, b object.Problem) int {
	return cmp.Or(cmp.Compare(a.ID.Namespace, b.ID.Namespace), cmp.Compare(a.ID.Kind, b.ID.Kind), cmp.Compare(a.ID.Name, b.ID.Name),
		cmp.Compare(a.ID.Group, b.ID.Group), a.ID.Origin.Compare(b.ID.Origin), cmp.Compare(a.Location, b.Location),
		cmp.Compare(a.Field, b.Field), cmp.Compare(a.Message, b.Message))
}
