package meaning

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
)

// copyInto returns a function for protoreflect.Message.Range. The function copies each field into target, unless the
// list skipped contains the field's name.
func copyInto(target protoreflect.Message, skipped ...protoreflect.Name) func(protoreflect.FieldDescriptor, protoreflect.Value) bool {
	return func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if !slices.Contains(skipped, fd.Name()) {
			target.Set(fd, v)
		}
		return true
	}
}

// chain is the model of a filter chain.
type chain struct {
	port    uint32 // of the destination; 0: any
	match   string // the filter chain's match as text, without the port
	deflt   bool   // the chain for connections that no other chain matches
	name    string
	tls     tls
	http    *hcmv3.HttpConnectionManager // without its filters and routes; nil for a chain that is not HTTP
	route   string                       // name of the route configuration
	inline  *routev3.RouteConfiguration
	tcp     *tcpv3.TcpProxy // without its plain clusters; nil for a chain without TCP proxy
	shares  rule            // the destinations of a TCP chain; only the fields shares and total are set
	filters []filter        // in order; the HTTP filters precede their connection manager
	index   map[string]int  // index in filters, by the filter's name
	taken   map[string]int  // maps a name to the last number that the method put appended to it, minus 1
	// statistics is the prefix of the statistics, which usually follows from other settings.
	statistics string
	rest       *listenerv3.FilterChain // the fields that are not in this model
	number     int                     // of the model; chains with one number are equal
}

// filter is one filter of a chain.
type filter struct {
	name     string        // unique within the chain
	stated   string        // the name in Envoy's configuration
	policies *policies     // settings of an RBAC filter; nil for other filters
	config   proto.Message // settings of any other filter; nil for a connection manager or TCP proxy
}

// chainsOf returns the models of the chains of a listener.
func (p *parts) chainsOf(l *listenerv3.Listener) []chain {
	all := make([]chain, 0, len(l.GetFilterChains())+1)
	for _, c := range l.GetFilterChains() {
		all = append(all, p.chainOf(c))
	}
	if d := l.GetDefaultFilterChain(); d != nil {
		c := p.chainOf(d)
		c.deflt = true
		all = append(all, c)
	}
	return all
}

// modelOf computes the model of a chain.
func (p *parts) modelOf(m *listenerv3.FilterChain) chain {
	p.modelled++
	c := chain{number: p.modelled, port: m.GetFilterChainMatch().GetDestinationPort().GetValue(), name: m.GetName(),
		rest: &listenerv3.FilterChain{}, index: map[string]int{}, taken: map[string]int{},
		match: chainText(m.GetFilterChainMatch()), tls: p.tls(m.GetTransportSocket())}
	for _, f := range m.GetFilters() {
		c.add(f, p)
	}
	m.ProtoReflect().Range(copyInto(c.rest.ProtoReflect(), "name", "filter_chain_match", "transport_socket", "filters"))
	return c
}

// add adds a network filter to the model.
func (c *chain) add(f *listenerv3.Filter, p *parts) {
	config, err := p.filter(f.GetTypedConfig())
	if err != nil {
		c.addFilter(f.GetName(), setting{Message: f})
		return
	}
	switch m := config.Message.(type) {
	case *hcmv3.HttpConnectionManager:
		for _, h := range m.GetHttpFilters() {
			c.addHTTP(h, p)
		}
		c.statistics, c.route, c.inline = m.GetStatPrefix(), m.GetRds().GetRouteConfigName(), m.GetRouteConfig()
		c.http = &hcmv3.HttpConnectionManager{}
		m.ProtoReflect().Range(copyInto(c.http.ProtoReflect(), "stat_prefix", "http_filters", "route_config"))
		if rds := m.GetRds(); rds != nil {
			c.http.RouteSpecifier = &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{ConfigSource: rds.GetConfigSource()}}
		}
		c.put(f.GetName(), filter{})
	case *tcpv3.TcpProxy:
		c.addTCP(m)
		c.put(f.GetName(), filter{})
	default:
		c.addFilter(f.GetName(), config)
	}
}

// addTCP adds the TCP proxy of a chain. A weighted cluster with more settings than name and weight also stays in c.tcp,
// without its weight.
func (c *chain) addTCP(m *tcpv3.TcpProxy) {
	c.tcp, c.statistics, m.StatPrefix = m, m.GetStatPrefix(), ""
	if name := m.GetCluster(); name != "" {
		c.shares.shares, c.shares.total, m.ClusterSpecifier = []share{{name, 1}}, 1, nil
		return
	}
	sums, weighted := map[string]uint64{}, m.GetWeightedClusters()
	if weighted == nil {
		return
	}
	weighted.Clusters = slices.DeleteFunc(weighted.Clusters, func(w *tcpv3.TcpProxy_WeightedCluster_ClusterWeight) bool {
		sums[w.GetName()] += uint64(w.GetWeight())
		c.shares.total += uint64(w.GetWeight())
		w.Weight = 0
		return proto.Equal(w, &tcpv3.TcpProxy_WeightedCluster_ClusterWeight{Name: w.GetName()})
	})
	for _, name := range bothKeys(sums, nil) {
		c.shares.shares = append(c.shares.shares, share{name, sums[name]})
	}
	if len(weighted.Clusters) == 0 {
		m.ClusterSpecifier = nil
	}
}

// addHTTP adds an HTTP filter to the model.
func (c *chain) addHTTP(h *hcmv3.HttpFilter, p *parts) {
	config, err := p.filter(h.GetTypedConfig())
	if err != nil || h.GetDisabled() || h.GetIsOptional() {
		c.addFilter(h.GetName(), setting{Message: h})
		return
	}
	c.addFilter(h.GetName(), config)
}

// addFilter adds a filter under a name that is unique in the chain.
func (c *chain) addFilter(name string, config setting) {
	f := filter{config: config.Message, stated: name}
	if p := config.policies; p != nil {
		f = filter{policies: p, stated: name}
		name = "rbac " + p.purpose()
	}
	c.put(shortFilter(name), f)
}

// put appends a filter under a name. If the chain already has the name, put adds a number to the name.
func (c *chain) put(name string, f filter) {
	f.name = name
	for _, is := c.index[f.name]; is; _, is = c.index[f.name] {
		c.taken[name]++
		f.name = name + " #" + strconv.Itoa(c.taken[name]+1)
	}
	c.index[f.name] = len(c.filters)
	c.filters = append(c.filters, f)
}

// unusedKey returns a key that is not in the map: the given key, or that key with a number. If deflt is set, "other
// connections" replaces the given key.
func unusedKey(key string, deflt bool, has map[string]chain) string {
	if deflt {
		key = "other connections"
	}
	unique := key
	for n := 2; ; n++ {
		if _, is := has[unique]; !is {
			return unique
		}
		unique = fmt.Sprintf("%s #%d", key, n)
	}
}

// meshProtocols maps lists of ALPN protocols to the words that describe their connections. Each list is sorted and
// joined with commas. Only clients in the mesh offer protocols that begin with "istio".
var meshProtocols = map[string]string{
	"istio,istio-h2,istio-http/1.0,istio-http/1.1,istio-peer-exchange": "of the mesh",
	"istio-h2,istio-http/1.0,istio-http/1.1":                           "of the mesh with HTTP",
	"istio,istio-peer-exchange":                                        "of the mesh with TCP",
	"h2c,http/1.1":                                                     "with HTTP",
}

// chainText describes the connections that a chain matches, without their destination port.
func chainText(m *listenerv3.FilterChainMatch) string {
	var parts []string
	add := func(word string, values []string) {
		if len(values) > 0 {
			values = slices.Sorted(slices.Values(values))
			parts = append(parts, word+" "+strings.Join(values, ","))
		}
	}
	add("SNI", m.GetServerNames())
	add("address", ranges(m.GetPrefixRanges()))
	switch {
	case m.GetTransportProtocol() == "raw_buffer":
		parts = append(parts, "plain text")
	case m.GetTransportProtocol() != "":
		parts = append(parts, strings.ToUpper(m.GetTransportProtocol()))
	}
	protocols := slices.Sorted(slices.Values(m.GetApplicationProtocols()))
	if of, is := meshProtocols[strings.Join(protocols, ",")]; is {
		parts = append(parts, of)
	} else {
		add("ALPN", protocols)
	}
	add("from", ranges(m.GetSourcePrefixRanges()))
	rest := &listenerv3.FilterChainMatch{}
	m.ProtoReflect().Range(copyInto(rest.ProtoReflect(), "server_names", "prefix_ranges", "transport_protocol",
		"application_protocols", "source_prefix_ranges", "destination_port"))
	if proto.Size(rest) > 0 {
		parts = append(parts, digest(rest.ProtoReflect(), maxDepth))
	}
	if len(parts) == 0 {
		return "all connections"
	}
	return strings.Join(parts, " ")
}

// ranges returns ranges of addresses as texts.
func ranges(all []*corev3.CidrRange) (texts []string) {
	for _, r := range all {
		texts = append(texts, fmt.Sprintf("%s/%d", r.GetAddressPrefix(), r.GetPrefixLen().GetValue()))
	}
	return texts
}

// kind returns the protocol of a chain: HTTP or TCP.
func (c chain) kind() string {
	if c.http != nil {
		return "HTTP"
	}
	return "TCP"
}

// to describes the destination of a chain.
func (c chain) to() string {
	switch {
	case c.route != "":
		return "HTTP by route configuration " + short(c.route)
	case c.inline != nil:
		var to []string
		for _, vh := range c.inline.GetVirtualHosts() {
			for _, r := range rulesOf(vh) {
				to = append(to, r.to())
			}
		}
		return "HTTP to " + orNone(list(to))
	}
	return "TCP to " + orNone(c.shares.to())
}

// compare adds the differences of two chains to the given change. It returns the facts about their policies and inline
// routes. These facts have no Subject.
func (c chain) compare(into *change, to chain) (facts []Fact) {
	if c.number == to.number {
		return nil
	}
	if c.kind() != to.kind() {
		into.compare("protocol", c.kind(), to.kind())
		return c.policies(to)
	}
	c.tls.compare(into, to.tls)
	into.compare("route configuration", c.route, to.route)
	switch {
	case c.inline != nil && to.inline != nil:
		facts = append(facts, routing("", Inbound, c.inline, to.inline)...)
		for i := range facts {
			facts[i].Subject = ""
		}
	case (c.inline == nil) != (to.inline == nil):
		into.compare("", c.to(), to.to())
	}
	if c.http != nil && to.http != nil {
		into.others(c.http, to.http)
	}
	if c.http == nil && to.http == nil {
		if a, b := c.shares.to(), to.shares.to(); a != b {
			into.compare("", a, b)
		} else if !c.shares.sameShares(to.shares) {
			into.compare("weights", c.shares.weights(), to.shares.weights())
		}
		if c.tcp != nil && to.tcp != nil {
			into.others(c.tcp, to.tcp)
		}
	}
	facts = append(facts, c.compareFilters(into, to)...)
	into.others(c.rest, to.rest)
	if len(*into)+len(facts) == 0 {
		into.compare("name", c.name, to.name)
		into.compare("prefix of statistics", c.statistics, to.statistics)
	}
	return facts
}

// filter returns the filter with a name, or the zero filter if the chain does not have it.
func (c chain) filter(name string) filter {
	if at, is := c.index[name]; is {
		return c.filters[at]
	}
	return filter{}
}

// filterNames returns the names of the filters, in order.
func (c chain) filterNames() (all []string) {
	for _, f := range c.filters {
		all = append(all, f.name)
	}
	return all
}

// policies returns the facts about the differences between the policies (RBAC filters) of two chains.
func (c chain) policies(to chain) (facts []Fact) {
	names := slices.Concat(c.filterNames(), to.filterNames())
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		if old, now := c.filter(name).policies, to.filter(name).policies; old != now {
			facts = append(facts, policyFacts(old, now, to.kind() == "TCP")...)
		}
	}
	return facts
}

// compareFilters compares the filters of two chains by name, and then their order. It adds the differences to the given
// change, and returns the facts about policies (RBAC filters).
func (c chain) compareFilters(into *change, to chain) []Fact {
	a, b := c.filterNames(), to.filterNames()
	for _, name := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(a, b)))) {
		old, now := c.filter(name), to.filter(name)
		if old.name != "" && now.name != "" && old.stated != now.stated {
			*into = append(*into, "name of filter "+name+" "+old.stated+" -> "+now.stated)
		}
		switch {
		case old.policies != nil && now.policies != nil:
		case old.name == "" && len(now.policies.rules()) == 0:
			*into = append(*into, "filter "+name+" new")
		case now.name == "" && len(old.policies.rules()) == 0:
			*into = append(*into, "filter "+name+" gone")
		case old.config != nil && now.config != nil && old.config.ProtoReflect().Descriptor() == now.config.ProtoReflect().Descriptor():
			for _, part := range differences(old.config, now.config) {
				*into = append(*into, name+" "+part)
			}
		case old.name != "" && now.name != "" && (old.config != nil || now.config != nil):
			*into = append(*into, "filter "+name+" changes")
		}
	}
	if before, after := inBoth(a, b); !slices.Equal(before, after) {
		into.compare("order of filters", strings.Join(before, ", "), strings.Join(after, ", "))
	}
	return c.policies(to)
}
