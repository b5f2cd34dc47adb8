package meaning

import (
	"math"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	upstreamsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"

	"navarch.io/navarch/push/xds"
)

// limitNames are the names of a cluster's limits, in the order of the field cluster.limits.
var limitNames = [4]string{"max connections", "max pending requests", "max requests", "max retries"}

// cluster is the model of a cluster.
type cluster struct {
	tls       tls
	balancing string // the load balancing policy, and the size of its ring or table
	hashes    bool   // the load balancing policy selects endpoints by a hash
	limits    [4]string
	ejection  *clusterv3.OutlierDetection // nil: endpoints are not ejected
	endpoints *endpointv3.ClusterLoadAssignment
	rule      string // the DestinationRule, as "namespace/name"
	statName  string
	protocol  string                           // HTTP version of requests
	http      *upstreamsv3.HttpProtocolOptions // without the protocol
	rest      *clusterv3.Cluster               // the fields that are not in this model
}

// clusterOf returns the model of a cluster.
func clusterOf(m *clusterv3.Cluster) cluster {
	m = proto.Clone(m).(*clusterv3.Cluster)
	c := cluster{ejection: m.OutlierDetection, endpoints: m.LoadAssignment, statName: m.AltStatName, rest: m}
	m.OutlierDetection, m.LoadAssignment, m.AltStatName = nil, nil, ""
	c.tls = clusterTLS(m)
	c.balancing, c.hashes = balancingOf(m)
	c.limits = limitsOf(m)
	c.rule = configOf(m.GetMetadata())
	if fields := m.GetMetadata().GetFilterMetadata()["istio"].GetFields(); fields["alpn_override"] != nil {
		c.tls.alpn = fields["alpn_override"].GetStringValue()
		delete(fields, "alpn_override")
	}
	c.takeHTTP(m)
	return c
}

// httpOptions is the key of HttpProtocolOptions in typed_extension_protocol_options.
const httpOptions = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

// takeHTTP moves the HTTP options of the cluster m to the model c.
func (c *cluster) takeHTTP(m *clusterv3.Cluster) {
	c.protocol, c.http = "HTTP/1.1", &upstreamsv3.HttpProtocolOptions{}
	packed := m.GetTypedExtensionProtocolOptions()[httpOptions]
	if packed == nil || packed.UnmarshalTo(c.http) != nil {
		return
	}
	delete(m.TypedExtensionProtocolOptions, httpOptions)
	switch {
	case c.http.GetUseDownstreamProtocolConfig() != nil:
		c.protocol = "the client's"
	case c.http.GetExplicitHttpConfig().GetHttp2ProtocolOptions() != nil:
		c.protocol = "HTTP/2"
	case c.http.GetExplicitHttpConfig().GetHttpProtocolOptions() == nil && c.http.GetUpstreamProtocolOptions() != nil:
		c.protocol = "another"
	}
	if e := c.http.GetExplicitHttpConfig(); e != nil && e.GetHttpProtocolOptions() != nil && proto.Size(e.GetHttpProtocolOptions()) == 0 {
		c.http.UpstreamProtocolOptions = nil // empty options mean the same as no options
	}
}

// compareHTTP adds the differences of the HTTP options to the given change.
func (c cluster) compareHTTP(into *change, to cluster) {
	into.compare("protocol", c.protocol, to.protocol)
	old, new := proto.CloneOf(c.http), proto.CloneOf(to.http)
	if c.protocol != to.protocol { // each protocol has its own settings
		old.UpstreamProtocolOptions, new.UpstreamProtocolOptions = nil, nil
	}
	into.others(old, new)
}

// balancingOf returns the balancing policy as a text, and whether the policy selects by a hash. It clears the policy in
// the cluster.
func balancingOf(m *clusterv3.Cluster) (text string, hashes bool) {
	text = m.GetLbPolicy().String()
	if ring := m.GetRingHashLbConfig(); ring != nil && ring.MinimumRingSize != nil {
		text += " with a ring of " + brief(ring.MinimumRingSize)
		ring.MinimumRingSize = nil
	}
	if maglev := m.GetMaglevLbConfig(); maglev != nil && maglev.TableSize != nil {
		text += " with a table of " + brief(maglev.TableSize)
		maglev.TableSize = nil
	}
	hashes = m.GetLbPolicy() == clusterv3.Cluster_RING_HASH || m.GetLbPolicy() == clusterv3.Cluster_MAGLEV
	if m.LbPolicy = 0; hashes && !hasFields(m.GetRingHashLbConfig()) && !hasFields(m.GetMaglevLbConfig()) {
		m.LbConfig = nil
	}
	return text, hashes
}

// hasFields reports whether a message has a field that is set.
func hasFields(m proto.Message) bool {
	return m.ProtoReflect().IsValid() && proto.Size(m) > 0
}

// limitsOf returns the limits of a cluster for the default priority, and clears them in the cluster.
func limitsOf(m *clusterv3.Cluster) (limits [4]string) {
	of := &clusterv3.CircuitBreakers_Thresholds{}
	for _, t := range m.GetCircuitBreakers().GetThresholds() {
		if t.GetPriority() == corev3.RoutingPriority_DEFAULT {
			of = t
			break
		}
	}
	for i, at := range []**wrapperspb.UInt32Value{&of.MaxConnections, &of.MaxPendingRequests, &of.MaxRequests, &of.MaxRetries} {
		limits[i] = strconv.FormatUint(uint64((*at).GetValue()), 10)
		switch {
		case *at == nil:
			limits[i] = "" // Envoy's default
		case (*at).GetValue() == math.MaxUint32:
			limits[i] = unlimited
		}
		*at = nil
	}
	return limits
}

// unlimited is the text of a limit that Envoy never reaches (the maximum of uint32).
const unlimited = "unlimited"

// configIn returns the Istio object that the metadata of a resource names, as "namespace/name". It returns "" if the
// metadata names no object.
func configIn(m *corev3.Metadata) string {
	path := m.GetFilterMetadata()["istio"].GetFields()["config"].GetStringValue()
	parts := strings.Split(path, "/") // /apis/GROUP/VERSION/namespaces/NAMESPACE/KIND/NAME
	if len(parts) != 8 || parts[4] != "namespaces" {
		return ""
	}
	return parts[5] + "/" + parts[7]
}

// configOf returns the result of configIn, and removes the name of the object from the metadata.
func configOf(m *corev3.Metadata) string {
	name := configIn(m)
	if name != "" {
		delete(m.GetFilterMetadata()["istio"].GetFields(), "config")
	}
	return name
}

// clusterFacts compares two clusters of one name. If old is nil, the cluster is new. If new is nil, the cluster is
// gone.
func clusterFacts(old, new *clusterv3.Cluster) []Fact {
	f := Fact{Area: Clusters, Subject: "cluster " + shortCluster(nameOf(old, new))}
	switch {
	case old == nil:
		f.Text = "new: " + clusterOf(new).summary()
		return []Fact{f}
	case new == nil:
		f.Text = "gone"
		return []Fact{f}
	}
	a, b := clusterOf(old), clusterOf(new)
	var c change
	a.compare(&c, b)
	if len(c) == 0 { // these two have no effect on traffic, and usually follow from other settings
		c.compare("DestinationRule", a.rule, b.rule)
		c.compare("name of statistics", a.statName, b.statName)
	}
	if f.Text = c.String(); f.Text == "" {
		return nil
	}
	return []Fact{f}
}

// nameOf returns the name of new, or the name of old if new is nil.
func nameOf[M interface {
	comparable
	GetName() string
}](old, new M) string {
	var none M
	if new == none {
		return old.GetName()
	}
	return new.GetName()
}

// summary describes a new cluster.
func (c cluster) summary() string {
	parts := []string{c.tls.mode, c.balancing}
	if c.endpoints != nil {
		parts = append(parts, plural(usableIn(c.endpoints), "endpoint"))
	}
	if c.rest.GetType() == clusterv3.Cluster_ORIGINAL_DST {
		parts[1] = "to the original destination"
	}
	return strings.Join(parts, ", ")
}

// compare adds the differences of two clusters to the given change.
func (c cluster) compare(into *change, to cluster) {
	c.tls.compare(into, to.tls)
	into.compare("balancing", c.balancing, to.balancing)
	for i, name := range limitNames {
		into.compare(name, orDefault(c.limits[i]), orDefault(to.limits[i]))
	}
	switch {
	case c.ejection == nil && to.ejection != nil:
		into.compare("ejection of failing endpoints", "", "on")
	case c.ejection != nil && to.ejection == nil:
		into.compare("ejection of failing endpoints", "on", "")
	case c.ejection != nil:
		for _, part := range differences(c.ejection, to.ejection) {
			*into = append(*into, "ejection "+part)
		}
	}
	c.compareHTTP(into, to)
	if c.endpoints != nil || to.endpoints != nil {
		*into = append(*into, assignmentChange(c.endpoints, to.endpoints)...)
	}
	into.others(c.rest, to.rest)
}

// orDefault returns a limit, or "Envoy's default" for an empty limit.
func orDefault(limit string) string {
	if limit == "" {
		return "Envoy's default"
	}
	return limit
}

// hostPort returns the host, port and subset in the name of an outbound cluster. For other clusters, ok is false.
func hostPort(name string) (host string, port uint32, subset string, ok bool) {
	direction, port, subset, host, ok := xds.ParseCluster(name)
	return host, port, subset, ok && direction == "outbound"
}
