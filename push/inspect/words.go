package inspect

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// parts maps the type of a Spec (the inputs of a resource or of a part of it) to a description of what is built from
// it.
var parts = map[string]string{
	"cluster.Outbound":           "cluster of a service",
	"cluster.Inbound":            "cluster of the workload's own port",
	"cluster.Static":             "cluster that every sidecar has",
	"cluster.Added":              "cluster that an EnvoyFilter adds",
	"extension.Config":           "configuration of the filter of a WasmPlugin or TrafficExtension",
	"extension.Pulled":           "configuration of such a filter, with the credential that the agent fetches its module with",
	"extension.Added":            "configuration of a filter that an EnvoyFilter adds",
	"cluster.Proxyless":          "cluster of a service, for gRPC's own xDS client",
	"cluster.ProxylessBlackHole": "cluster without endpoints, for gRPC's own xDS client",
	"endpoint.Spec":              "endpoints of a cluster",
	"endpoint.Proxyless":         "endpoints of a cluster, for gRPC's own xDS client",
	"proxyless.Client":           "listener of a name that gRPC's own xDS client calls",
	"proxyless.Server":           "listener of a server with gRPC's own xDS client",
	"vhost.Proxyless":            "route configuration for gRPC's own xDS client",
	"listener.Outbound":          "outbound listener",
	"listener.VirtualOutbound":   "listener of all outbound connections",
	"listener.VirtualInbound":    "listener of all inbound connections",
	"listener.Ingress":           "listener of a Sidecar's ingress",
	"listener.Added":             "listener that an EnvoyFilter adds",
	"listener.Servers":           "listener of a gateway",
	"listener.ServerChain":       "filter chain of a gateway's listener",
	"gateway.Chain":              "filter chain of a gateway's listener",
	"gateway.ServedHost":         "virtual host",
	"front.TrafficSource":        "service, or listener of a Sidecar, whose traffic it takes",
	"front.ModeSource":           "PeerAuthentications that set the mutual TLS of its ports",
	"route.Spec":                 "route configuration",
	"secret.Pair":                "certificate with its private key",
	"secret.Trust":               "certificates that peers are verified against",
	"vhost.Spec":                 "virtual host",
	"vhost.CatchAll":             "virtual host of all other hosts",
	"vhost.Added":                "virtual host that an EnvoyFilter adds",
}

// ofProxy is the prefix of texts in the map words. It marks fields whose values come from the proxy: its node, labels,
// certificate, extensions.
const ofProxy = "proxy: "

// words maps the name of a field of Specs to its description for operators. A test compares the map with the existing
// fields.
var words = map[string]string{
	"Accounts":         "service accounts that the endpoints may have",
	"Denied":           "identities of these service accounts that the CA has revoked",
	"Auto":             "spoken to in the protocol of the client",
	"Bind":             "address",
	"BindToPort":       "bound to its port",
	"CIDRs":            "destination addresses",
	"Caps":             ofProxy + "extensions and certificate",
	"Closed":           "closed, because a policy that selects the workload cannot be enforced",
	"Cluster":          "cluster",
	"Credentials":      "credentials of image registries",
	"Destinations":     "destinations",
	"Discovery":        "discovery of endpoints",
	"Domains":          "domains",
	"Egress":           "number of the egress listener in the Sidecar",
	"EgressProxy":      "cluster of unknown destinations (egressProxy of the Sidecar)",
	"Fallback":         "cluster of connections that match no route",
	"Hash":             "consistent hash",
	"Excluded":         ofProxy + "matches that are not for it, or not for the port",
	"HTTP2":            "spoken to in HTTP/2",
	"Host":             "host",
	"Hosts":            "virtual hosts",
	"Index":            "http rule",
	"Inner":            "port of the workload",
	"Key":              "private key",
	"Labels":           ofProxy + "labels that rules ask for",
	"Horizon":          "network of the proxy, and the gateways of others",
	"Localities":       "preference of localities",
	"Locality":         ofProxy + "locality",
	"MTLS":             "mutual TLS",
	"Members":          "endpoints",
	"Mesh":             "mesh configuration",
	"Name":             "name",
	"MTLSDisabled":     "digest of the endpoints without mutual TLS",
	"Passthrough":      "unknown destinations pass",
	"ByName":           "plain HTTP requests to unknown hosts go to the addresses of their names (MeshConfig outboundTrafficPolicy)",
	"Resolver":         ofProxy + "DNS server of its agent, which resolves these names",
	"Sent":             "requests whose host is an IP address go to their original destination (MeshConfig outboundTrafficPolicy)",
	"Patch":            "patch",
	"Patches":          "patch",
	"Peers":            "mutual TLS of ports",
	"Plain":            "endpoints without mutual TLS by PeerAuthentication",
	"Policies":         "AuthorizationPolicies of the workload",
	"Authentications":  "RequestAuthentications of the workload",
	"Authorizers":      "providers of external authorization that its policies name",
	"Policy":           "traffic policy",
	"Port":             "port",
	"Ports":            "ports of the workload",
	"Protocol":         "protocol",
	"Rest":             "mutual TLS of ports that no service names",
	"Route":            "routes",
	"Routes":           "routes of connections",
	"Rule":             "traffic policy",
	"Rules":            "routes",
	"SNI":              "server names",
	"Secret":           "secret",
	"Service":          "service",
	"ServicePort":      "port of the service",
	"Sidecar":          "sidecar configuration",
	"Sniff":            "protocol is detected",
	"StatPrefix":       "prefix of statistics",
	"Subset":           "subset",
	"SubsetRule":       "definition of the subset",
	"TLS":              "TLS",
	"TCP":              "TCP filter chains",
	"Target":           "address of the application",
	"Targets":          "clusters",
	"Transparent":      ofProxy + "interception by TPROXY",
	"VirtualService":   "VirtualService",
	"Weight":           "weight",
	"By":               "Telemetries",
	"Default":          "value where it is missing",
	"Disabled":         "disabled",
	"Drop":             "not counted",
	"Filter":           "CEL expression that selects the logged requests",
	"Interval":         "time between two reports of a connection",
	"Kind":             "source of the value",
	"Logs":             "access logs",
	"MaxPathTagLength": "bytes of a path",
	"Metric":           "metric",
	"Metrics":          "metrics of requests and connections",
	"NoPropagation":    "headers of traces are not passed on",
	"Off":              "nothing is counted",
	"On":               "sent",
	"Overrides":        "overridden metrics",
	"Provider":         "provider",
	"RequestID":        "sampled by the request id",
	"Said":             "by Telemetries",
	"Sampler":          "service of the sampler",
	"Sampling":         "percent that are sampled",
	"Tag":              "tag",
	"Tags":             "tags",
	"Telemetry":        "access logs, metrics and spans",
	"To":               "service",
	"Tracing":          "spans",
	"Value":            "value",
	"Families":         "address families of the proxy",
	"Pool":             "connection pool",
	"Connection":       "connections (as the connection pool says, else MeshConfig connectTimeout and tcpKeepalive)",
	"Upgrade":          "HTTP/1.1 is sent on as HTTP/2 (as the connection pool says, else MeshConfig h2UpgradePolicy)",
	"PoolAt":           "connection pool (of the Sidecar, else of the service's rules, else of MeshConfig defaultTrafficPolicy)",
	"AllPlain":         "without the mesh's mTLS, as a rule says",
	"GRPCWeb":          "gRPC-Web is understood (in a gateway's chain: for the virtual hosts that enable it)",
	"Dynamic":          "wildcard hosts, whose names are resolved when clients request them",
	"DynamicPort":      "port of the wildcard hosts",
	"Extension":        "extension",
	"Extensions":       "extensions, as filters",
	"Proxy":            "headers and connections (ProxyConfig of the proxy, else MeshConfig defaultConfig)",
	"HeaderCase":       "names of HTTP/1 headers keep their case (ProxyConfig of the proxy, else MeshConfig defaultConfig)",
	"ByAgent":          "its module is fetched by the proxy's agent",
	"Also":             "further addresses",
	"Ended":            "TLS that ends here",
	"Mode":             "mode",
	"Certificate":      "file of the certificate",
	"Authorities":      "file of the authorities of clients",
	"Revoked":          "file of revocation lists",
	"Foreign":          "the files are named by an object of another namespace",
	"Ciphers":          "cipher suites",
	"Curves":           "ECDH curves",
	"Least":            "lowest version",
	"Most":             "highest version",
	"Certificate2":     "file of a second certificate, with another kind of key",
	"Key2":             "file of its key",
	"Secrets":          "secrets with the certificate",
	"Servers":          "servers that it belongs to",
	"Trust":            "secret with the authorities of clients",
	"Clients":          "names, one of which a client's certificate must have",
	"Unverified":       "client certificates of any authority are accepted",
	"Keys":             "public keys of clients",
	"Hashes":           "certificates of clients",
	"ALPN":             "protocols that are answered",
	"QUIC":             "HTTP/3",
	"Opaque":           "TCP without inspection of bytes",
	"Chains":           "filter chains",
	"Names":            "server names",
	"Protocols":        "protocols that clients offer (ALPN)",
	"HTTP":             "HTTP",
	"Internal":         "networks whose requests are internal (meshNetworks)",
	"NoDefault":        "routes of VirtualServices only",
	"TLSOnly":          "requests without TLS are redirected (httpsRedirect)",
	"HTTP3":            "UDP port of HTTP/3",
	"Misdirected":      "answered 421, because another server serves these hosts",
	"Plainly":          "a port without a protocol is sent HTTP/1.1",
	"BySNI":            "mutual TLS connections are forwarded by SNI",
	"WithPorts":        "names of virtual hosts are compared with their port",
}

// outbound is the text that names the settings for unknown destinations.
const outbound = " (outboundTrafficPolicy of the Sidecar, else of MeshConfig)"

// wordsOf has descriptions that override words for a field of one type of Spec. The field has another meaning there, or
// its value depends on a setting of MeshConfig that the plan reads. A test compares the map with these settings.
var wordsOf = map[string]string{
	"cluster.Outbound.TLS":         "TLS (as the rule says, else MeshConfig enableAutoMtls)",
	"endpoint.Spec.Members":        "endpoints (of cluster-local hosts, as MeshConfig serviceSettings has them: of its own cluster)",
	"listener.InboundPort.Ended":   "TLS that ends here (as the Sidecar's ingress listener says, else MeshConfig tlsDefaults)",
	"listener.Outbound.BindToPort": "bound to its port (captureMode NONE; MeshConfig proxyHttpPort)",
	"listener.Common.Telemetry": "access logs, metrics and spans (Telemetries; MeshConfig defaultProviders, accessLogFile, enableTracing, " +
		"defaultConfig)",
	"gateway.Chain.Route":                  "route configuration",
	"listener.ServerChain.TLS":             "TLS that ends here (as the server says, else MeshConfig tlsDefaults)",
	"listener.ServerChain.TCP":             "connections that are not HTTP",
	"listener.Outbound.Fallback":           "cluster of connections that match no route" + outbound,
	"cluster.Inbound.Target":               "address of the application (MeshConfig inboundTrafficPolicy)",
	"listener.VirtualInbound.Port":         "port (MeshConfig proxyInboundListenPort)",
	"listener.VirtualOutbound.Passthrough": "unknown destinations pass" + outbound,
	"listener.VirtualOutbound.Port":        "port (MeshConfig proxyListenPort)",
	"vhost.CatchAll.Passthrough":           "unknown destinations pass" + outbound,
}

// zeroIsShown reports whether the zero value of a field is a decision of the plan, which must be shown.
func zeroIsShown(field string) bool { return field == "Passthrough" || field == "TLS" }

// wordOf returns the description of a field of a Spec, or the field's name if there is no description. The result proxy
// reports whether the value of the field comes from the proxy.
func wordOf(spec reflect.Type, field string) (word string, proxy bool) {
	if word := wordsOf[spec.String()+"."+field]; word != "" {
		return word, false
	}
	word, known := words[field]
	if !known {
		return field, false
	}
	return strings.CutPrefix(word, ofProxy)
}

// choices maps the type of an enumeration in a Spec to the texts for its values 0, 1 and so on.
var choices = map[string][]string{
	"traffic.TLS": {"none", "mutual, to endpoints with tlsMode istio", "mutual, to all endpoints", "mutual, as the rule says",
		"as the rule says", "closed: the TLS settings of the rule cannot be provided"},
	"traffic.Discovery": {"EDS", "STRICT_DNS", "LOGICAL_DNS", "ORIGINAL_DST", "each name when a client requests it"},
	"telemetry.Kind":    {"literal", "environment", "header", "formatter", "policies that are not enforced"},
	"listener.MTLS":     {"connections pass unchanged", "permissive", "strict", "every connection is refused"},
}

// choice returns the text for a value of an enumeration in choices. It returns false for any other value.
func choice(v reflect.Value) (string, bool) {
	all, ok := choices[v.Type().String()]
	if !ok || !v.CanUint() || v.Uint() >= uint64(len(all)) {
		return "", false
	}
	return all[v.Uint()], true
}

// capabilityNames returns the capabilities of a proxy as text: the names of extensions, and words for two properties of
// its bootstrap.
func capabilityNames(c xds.Caps) string {
	all := xds.Extensions(c)
	if c.Has(xds.CapIdentity) {
		all = append([]string{"a certificate of the mesh"}, all...)
	}
	if c.Has(xds.CapSelfDiscovery) {
		all = append([]string{"the cluster of its own workload"}, all...)
	}
	return strings.Join(all, ", ")
}

// meshValues returns "MeshConfig NAME" for each field of MeshConfig that differs from its default. If no field differs,
// it returns only "MeshConfig". The mesh configuration of a Spec has only the fields that its builder reads.
func meshValues(mesh *model.Mesh) (out []string) {
	set, usual := mesh.Spec.ProtoReflect(), model.MeshDefaults().ProtoReflect()
	fields := set.Descriptor().Fields()
	for i := range fields.Len() {
		if field := fields.Get(i); set.Has(field) && !sameField(set, usual, field) {
			out = append(out, "MeshConfig "+field.JSONName())
		}
	}
	if out == nil {
		out = []string{"MeshConfig"}
	}
	return out
}

// sameField reports whether a field is equal in two messages of one type.
func sameField(a, b protoreflect.Message, field protoreflect.FieldDescriptor) bool {
	one, other := a.Type().New(), b.Type().New()
	if a.Has(field) {
		one.Set(field, a.Get(field))
	}
	if b.Has(field) {
		other.Set(field, b.Get(field))
	}
	return proto.Equal(one.Interface(), other.Interface())
}

// fieldPath returns a space and a path in record: the path of the field that the Spec uses. If the path is not known,
// it returns "".
func fieldPath(spec reflect.Value, field string, record model.Record) string {
	text := func(name string) string {
		if v := spec.FieldByName(name); v.IsValid() && v.Kind() == reflect.String {
			return v.String()
		}
		return ""
	}
	switch r := record.(type) {
	case *model.DestinationRule:
		if field == "SubsetRule" {
			return indexed("spec.subsets", slices.IndexFunc(r.Spec.GetSubsets(), subsetNamed(text("Subset"))))
		}
		return " spec.trafficPolicy"
	case *model.Sidecar:
		if v := spec.FieldByName("Egress"); v.IsValid() && v.CanInt() {
			return indexed("spec.egress", int(v.Int())-1)
		}
	}
	return ""
}

// indexed returns a space and the path of an element of a list, or "" for a negative index.
func indexed(path string, at int) string {
	if at < 0 {
		return ""
	}
	return fmt.Sprintf(" %s[%d]", path, at)
}

// subsetNamed returns a predicate for subsets with a name.
func subsetNamed(name string) func(*networkingv1.Subset) bool {
	return func(s *networkingv1.Subset) bool { return s.GetName() == name }
}

// localityText describes settings of load balancing by locality.
func localityText(l traffic.Localities) string {
	var parts []string
	if l.Zones != nil {
		parts = append(parts, "the proxy's zone as far as Envoy balances, its region first")
	}
	for _, d := range l.Setting.GetDistribute() {
		parts = append(parts, "distributed from "+d.GetFrom())
	}
	if labels := l.Priority(); len(labels) > 0 {
		parts = append(parts, "by equal labels "+strings.Join(labels, ", "))
	}
	for from, to := range l.Failovers() {
		parts = append(parts, "from "+from+" to "+to)
	}
	if len(parts) == 0 {
		return "the nearest first"
	}
	return strings.Join(parts, "; ")
}
