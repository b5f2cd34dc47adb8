// Package normal turns raw API objects into records: it validates them, resolves names, applies defaults, and reports
// problems. A record is the form of an object in the store and in the plan.
//
// Owns: nothing; all functions are pure.
// Reads: API objects (store/object), and the objects that they depend on (Lookup).
// Never: uses sockets, files, clocks or types of Envoy.
//
// Fetched key sets are part of the record of their RequestAuthentication, and resolved addresses are part of
// NetworkGateways. A change of keys is therefore a change of the policies that use the keys.
//
// A private key is not part of a record. Object returns the key beside the record (Result.Private). The record may be
// stored only after the key is sealed.
package normal

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal/fields"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/problem"
)

// Options contains the settings, in addition to the mesh configuration, on which the records depend.
type Options struct {
	Domain          string // DNS suffix of the cluster; default cluster.local
	Cluster         string // name of the config cluster (CLUSTER_ID of the cluster's proxies); default Kubernetes
	Network         string // network of endpoints to which no other rule assigns one; usually empty
	Revision        string // the mesh configuration is ConfigMap istio-<Revision>; empty or "default": istio
	SystemNamespace string // namespace of this ConfigMap; default istio-system
	// Signers reports whether Kubernetes signers sign workload certificates. If so, the signers' roots are in the
	// mesh configuration (caCertificates, certSigners).
	Signers bool
	// Automatic has the ranges of the automatic addresses for hosts of ServiceEntries that state no address
	// (PILOT_ENABLE_IP_AUTOALLOCATE); empty: such hosts get no addresses.
	Automatic []netip.Prefix
	// KeysOfCluster reports whether key sets of RequestAuthentications are fetched from Services and Pods of the
	// clusters (--jwks-cluster). Here it affects only the text of warnings.
	KeysOfCluster bool
	// ResolveGateways enables the resolution of network gateways whose address is a host name
	// (RESOLVE_HOSTNAME_GATEWAYS).
	ResolveGateways bool
	// MergedListeners configures one listener for each TCP port of every headless Service
	// (PILOT_ENABLE_HEADLESS_FILTER_CHAIN_LISTENER). If it is false, only headless Services with the annotation
	// navarch.io/headless-listeners=merged get such listeners. LocalNames limits names of headless Services to
	// endpoints in the proxy's own cluster (ENABLE_MULTICLUSTER_HEADLESS=false).
	MergedListeners, LocalNames bool
	Isolation                   Isolation // isolation of tenants
	// OwnGateways reports whether Gateways apply to proxies of their own namespace only
	// (PILOT_SCOPE_GATEWAY_TO_NAMESPACE). It affects only warnings.
	OwnGateways bool
}

// Normalizer turns objects into records with given Options. Its Options must not be changed. It is safe for concurrent
// use.
type Normalizer struct{ Options }

// New returns a Normalizer. It sets the defaults of Domain, Cluster and SystemNamespace, and converts Domain to lower
// case.
func New(o Options) *Normalizer {
	o.Domain = cmp.Or(strings.ToLower(o.Domain), "cluster.local")
	o.Cluster = cmp.Or(o.Cluster, "Kubernetes")
	o.SystemNamespace = cmp.Or(o.SystemNamespace, "istio-system")
	return &Normalizer{o}
}

// Lookup finds the objects that one object depends on, each in the origin of that object. Results must not be changed.
// A nil or zero result stands for a missing object.
type Lookup interface {
	Pod(id object.ID) *Pod
	PodAt(id object.ID) *Pod // by address (PodAtID)
	Node(id object.ID) *Node
	Nodes(of origin.Origin) iter.Seq[*Node] // all Nodes of an origin, in any order
	Namespace(id object.ID) *Namespace
	Role(id object.ID) *Role        // of a Role or a ClusterRole
	Mesh() *meshv1.MeshConfig       // never nil
	Networks() *meshv1.MeshNetworks // nil: there is no meshNetworks
	// Automatic returns the automatic addresses of a ServiceEntry (AutomaticID), by host.
	Automatic(id object.ID) map[string][]string
	// AutomaticAt returns the AutomaticID of the ServiceEntry that has an automatic address. The argument id is the
	// AutomaticAtID of the address. The result is zero if the address is not assigned.
	AutomaticAt(id object.ID) object.ID
	Resolved(id object.ID) []string // addresses of a host name (ResolvedID)
	Keys(id object.ID) Keys         // state of a key source (KeysID)
	Owners
}

// Result is the normal form of one object.
type Result struct {
	Records  []model.Record
	Problems []object.Problem
	// Spoiled reports that the object is invalid. Records is then empty, and the previous records remain in effect.
	// Objects that break an isolation rule (Isolation.On), and configuration outside of the config cluster, have errors
	// without being spoiled. Records lacks what is left out.
	Spoiled bool
	// Refused lists the problems for which the webhook refuses a new object, although a stored object with the same
	// problems is applied. istiod has the same difference, since it does not validate stored objects again. Problems
	// contains these problems too, as warnings, unless it is full. Each of the two lists has at most 50 problems.
	Refused []object.Problem
	// Closed is the record to use for a spoiled policy until a valid version exists. It refuses all requests to the
	// workloads that the policy selects. It is nil for other objects, and if Normalizer.Closed returns nil.
	Closed model.Record
	// Refs identifies the objects that were looked up, including objects that do not exist. These are Pods, Pods by
	// address (PodAtID), Nodes or AllNodes, Namespaces, Roles, automatic addresses, host names, key sets and owners
	// (such as HostID). After a change of any of these objects, this object has to be normalised again. IDs may be
	// repeated.
	Refs []object.ID
	// Private is the private key, or the registry credentials, of a Secret; nil without such a value. With Private,
	// Records has one record. It does not contain Private, and may be stored only after Private is sealed.
	Private model.PrivateKey
	// Until is the end of validity of the certificate that belongs to Private. UntilAt is the path of the field with
	// this certificate. Both are zero without such a certificate.
	Until   time.Time
	UntilAt string
	// UsesMesh reports whether the result depends on the mesh configuration (Lookup.Mesh). It does not cover
	// Lookup.Networks, on which the results for EndpointSlices, Pods and Services may depend.
	UsesMesh bool
}

// kindKey identifies a kind of objects.
type kindKey struct{ group, kind string }

// normalise returns the records of an object of one kind, and reports problems to r.
type normalise func(n *Normalizer, r *report, obj *object.Object, ctx Lookup) []model.Record

// The API versions that this package reads.
var istioNetworkingVersions = []string{"v1", "v1beta1", "v1alpha3"}
var istioSecurityVersions = []string{"v1", "v1beta1"}
var istioTelemetryVersions = []string{"v1", "v1alpha1"}

// kinds lists all kinds that this package reads. The function fn is nil for kinds that have no records of their own.
// Records of other kinds depend on these kinds (ParseNode, ParseRole). Kubernetes' kinds and WorkloadEntries are read
// from every cluster. Istio's other kinds are read from the config cluster alone (configuration).
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

// Served reports whether this package reads the kind and version of an object.
func Served(obj *object.Object) bool {
	return slices.Contains(kinds[kindKey{obj.ID.Group, obj.ID.Kind}].versions, obj.Version)
}

// Object returns the normal form of one object, and does not change the object. For Nodes, Roles and ClusterRoles,
// which only other objects depend on, the Result is zero (ParseNode, ParseRole). For a kind that is not read, the
// Result has no records. The Result has a warning unless the kind is irrelevant to a mesh. A version that is not served
// spoils the object of any other kind.
func (n *Normalizer) Object(obj *object.Object, ctx Lookup) Result {
	return n.object(&report{id: obj.ID, location: obj.Location}, obj, ctx)
}

// object does the work of Object. The report r must be empty.
func (n *Normalizer) object(r *report, obj *object.Object, ctx Lookup) Result {
	kind, known := kinds[kindKey{obj.ID.Group, obj.ID.Kind}]
	switch {
	case !known:
		r.unknown(obj.ID)
		return r.result(nil)
	case !Served(obj):
		r.unsupportedf("apiVersion", "%s", unserved(obj, kind.versions))
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

// SourceObject returns the ID of the object that a record was made from, given the key of the record. It returns the
// zero ID for the Mesh record and for the gateways of meshNetworks.
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
	case model.KindSecret:
		if rest, ok := strings.CutPrefix(key.Name, model.ConfigMapPrefix); ok {
			id.Kind, id.Name = "ConfigMap", rest
		}
	case model.KindSecretReader:
		if key.Namespace == "" {
			id.Kind = "ClusterRoleBinding"
		}
	default: // the object has the namespace and name of the record
	}
	return id
}

// externalNamePrefix begins the name of the Endpoints record of a Service of type ExternalName.
// model.ServiceEntryPrefix is the corresponding prefix for a ServiceEntry. If a ServiceEntry has several such records,
// a suffix after a second colon distinguishes them. Names of Services and ServiceEntries contain no colon.
const externalNamePrefix = "externalname:"

// report collects the problems of one object, and the other fields of its Result.
type report struct {
	id                  object.ID
	location            string
	problems, refused   []object.Problem
	spoiled             bool
	refs                []object.ID
	mesh                bool
	private             model.PrivateKey
	until               time.Time
	untilAt             string
	waiting             context.Context // ends the normalisation; nil: never
	steps               int             // calls of step
	rewritten           bool            // walkMessage changed the message that is decoded
	regexWork, celBytes int             // sums over the expressions so far: model.RegexWork, and bytes of CEL
}

// maxProblems bounds the problems reported for one object.
const maxProblems = 50

// errorf reports an invalid field, and spoils the object. The next three methods do the same with other codes.
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

// spoil reports an error with a code, and spoils the object.
func (r *report) spoil(code problem.Code, field, format string, args ...any) {
	r.spoiled = true
	r.add(r.problem(code, problem.Error, field, format, args...))
}

// warnf reports a problem of an object that is applied anyway.
func (r *report) warnf(code problem.Code, field, format string, args ...any) {
	r.add(r.problem(code, problem.Warning, field, format, args...))
}

// analysef reports a warning with a code of Istio's analyzers.
func (r *report) analysef(analyzer problem.Analyzer, code problem.Code, field, format string, args ...any) {
	one := r.problem(code, problem.Warning, field, format, args...)
	one.Analyzer = analyzer
	r.add(one)
}

// refusef reports a problem for which the webhook refuses a new object, while a stored object is applied
// (Result.Refused).
func (r *report) refusef(code problem.Code, field, format string, args ...any) {
	r.add(r.problem(code, problem.Warning, field, format, args...))
	if len(r.refused) < maxProblems {
		r.refused = append(r.refused, r.problem(code, problem.Warning, field, format, args...))
	}
}

// add appends a problem. In a full list an error replaces the last warning, and other problems are dropped.
func (r *report) add(one object.Problem) {
	if len(r.problems) < maxProblems {
		r.problems = append(r.problems, one)
		return
	}
	for i := len(r.problems) - 1; i >= 0 && one.Severity == problem.Error; i-- {
		if r.problems[i].Severity == problem.Warning {
			r.problems[i] = one
			return
		}
	}
}

// problem returns a problem of the object.
func (r *report) problem(code problem.Code, severity problem.Severity, field, format string, args ...any) object.Problem {
	r.step()
	return object.Problem{ID: r.id, Location: r.location, Field: field, Code: code, Severity: severity, Message: fmt.Sprintf(format, args...)}
}

// ref records a lookup. Repeated IDs are harmless, so ref compares only the last four.
func (r *report) ref(id object.ID) {
	if !slices.Contains(r.refs[max(0, len(r.refs)-4):], id) {
		r.refs = append(r.refs, id)
	}
}

// result returns the Result with the given records.
func (r *report) result(records []model.Record) Result {
	if r.spoiled {
		records, r.private, r.until, r.untilAt = nil, nil, time.Time{}, ""
	}
	return Result{Records: records, Problems: r.problems, Spoiled: r.spoiled, Refused: r.refused, Refs: r.refs, UsesMesh: r.mesh,
		Private: r.private, Until: r.until, UntilAt: r.untilAt}
}

// unacted warns of a field that is set and has no effect in this version.
func (r *report) unacted(at string, row *fields.Row) {
	r.warnf(problem.NotSupported, at, "is not acted on by this version: %s", row.Text)
}

// record returns one record in a list. A key or body that model.New refuses spoils the object, and the result is nil.
func (r *report) record(kind model.Kind, obj *object.Object, name string, body proto.Message) []model.Record {
	key := model.Key{Kind: kind, Origin: obj.ID.Origin, Namespace: obj.ID.Namespace, Name: name}
	record, err := model.New(key, obj.CreatedAt(), body)
	if err != nil {
		r.errorf("", "%v", err)
		return nil
	}
	return []model.Record{record}
}

// CompareProblems orders problems by object (namespace, kind, name, group, origin), then by location, field and
// message. It ignores other fields.
func CompareProblems(a, b object.Problem) int {
	if a.ID != b.ID {
		return cmp.Or(cmp.Compare(a.ID.Namespace, b.ID.Namespace), cmp.Compare(a.ID.Kind, b.ID.Kind), cmp.Compare(a.ID.Name, b.ID.Name),
			cmp.Compare(a.ID.Group, b.ID.Group), a.ID.Origin.Compare(b.ID.Origin))
	}
	return cmp.Or(cmp.Compare(a.Location, b.Location), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Message, b.Message),
		cmp.Compare(a.Whole, b.Whole))
}
