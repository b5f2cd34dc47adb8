package vhost

import (
	"cmp"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1alpha3"
	"sigs.k8s.io/yaml"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

var (
	strs  intern.Table[string]
	dests intern.Table[Destination]
	rules intern.Table[Rule]
	ptchs intern.Table[model.Patch]
)

func fromYAML(t testing.TB, text string, into proto.Message) {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = protojson.Unmarshal(raw, into)
	}
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
}

func record[R model.Record](t testing.TB, kind model.Kind, name string, body proto.Message) R {
	t.Helper()
	r, err := model.New(model.Key{Kind: kind, Namespace: "shop", Name: name}, 0, body)
	if err != nil {
		t.Fatal(err)
	}
	return r.(R)
}

// service returns a VirtualService from the YAML of its spec.
func service(t testing.TB, text string) *model.VirtualService {
	t.Helper()
	vs := &networkingv1.VirtualService{}
	fromYAML(t, text, vs)
	return record[*model.VirtualService](t, model.KindVirtualService, "reviews", vs)
}

func rule(t testing.TB, text string) *model.DestinationRule {
	t.Helper()
	dr := &networkingv1.DestinationRule{}
	fromYAML(t, text, dr)
	return record[*model.DestinationRule](t, model.KindDestinationRule, "reviews", dr)
}

const reviews = "reviews.shop.svc.cluster.local"

// rulesOf lists the http rules of a VirtualService; nil makes an empty list.
func rulesOf(vs *model.VirtualService) intern.List[Rule] {
	if vs == nil {
		return intern.List[Rule]{}
	}
	var all []Rule
	for i := range vs.Spec.Http {
		all = append(all, Rule{VirtualService: vs, Index: i})
	}
	return rules.List(all...)
}

// specOf resolves every destination to outbound|80|subset|host, except those of the host nowhere.
func specOf(vs *model.VirtualService) Spec {
	s := Spec{
		Host: reviews, Port: 80, Rules: rulesOf(vs), Domains: strs.List(reviews, "reviews"),
		Mesh: model.DefaultMesh(), Caps: xds.StockCaps,
	}
	if vs == nil {
		s.Destinations = dests.List(Destination{Host: reviews, Port: 80, Cluster: xds.ClusterName{Port: 80, Host: reviews}})
		return s
	}
	var all []Destination
	for _, rule := range vs.Spec.Http {
		for _, ref := range virtualservice.Routed(rule) {
			d := Destination{Host: ref.Host, Subset: ref.Subset, Port: ref.Port}
			if ref.Host != "nowhere" {
				d.Cluster = xds.ClusterName{Port: max(ref.Port, 80), Subset: ref.Subset, Host: ref.Host}
			}
			if !slices.Contains(all, d) {
				all = append(all, d)
			}
		}
	}
	s.Destinations = dests.List(all...)
	return s
}

type fragmenter interface{ Fragment() (*xds.Fragment, error) }

// draw builds a fragment, decodes it as Envoy does, and validates it with protoc-gen-validate.
func draw(t testing.TB, s fragmenter) *routev3.VirtualHost {
	t.Helper()
	f, err := s.Fragment()
	if err != nil {
		t.Fatal(err)
	}
	rc := &routev3.RouteConfiguration{}
	if err := proto.Unmarshal(f.Bytes, rc); err != nil {
		t.Fatal(err)
	}
	if len(rc.VirtualHosts) != 1 {
		t.Fatalf("%d virtual hosts in the fragment, want 1", len(rc.VirtualHosts))
	}
	if err := rc.ValidateAll(); err != nil {
		t.Fatalf("Envoy would refuse it: %v", err)
	}
	return rc.VirtualHosts[0]
}

func drawYAML(t testing.TB, text string) *routev3.VirtualHost {
	t.Helper()
	return draw(t, specOf(service(t, text)))
}

// only returns the one route of a virtual host.
func only(t testing.TB, vh *routev3.VirtualHost) *routev3.Route {
	t.Helper()
	if len(vh.Routes) != 1 {
		t.Fatalf("%d routes, want 1: %v", len(vh.Routes), vh.Routes)
	}
	return vh.Routes[0]
}

// request holds the properties that a route can match; headers are by lower-case name.
type request struct {
	path, method, authority string
	headers                 map[string]string
}

// walk returns the first route that matches, as Envoy's router does; nil is a 404.
func walk(vh *routev3.VirtualHost, r request) *routev3.Route {
	all := map[string]string{":method": "GET", ":authority": reviews, ":scheme": "http"}
	for k, v := range r.headers {
		all[k] = v
	}
	if r.method != "" {
		all[":method"] = r.method
	}
	if r.authority != "" {
		all[":authority"] = r.authority
	}
	path, query, _ := strings.Cut(r.path, "?")
	params, _ := url.ParseQuery(query)
	for _, route := range vh.Routes {
		claimed := slices.ContainsFunc(route.Match.DynamicMetadata, requiresClaim) // no filter has found any
		if pathMatches(route.Match, path) && !claimed && headersMatch(route.Match, all) && queryMatches(route.Match, params) {
			return route
		}
	}
	return nil
}

func pathMatches(m *routev3.RouteMatch, path string) bool {
	fold := func(s string) string { return s }
	if m.CaseSensitive != nil && !m.CaseSensitive.Value {
		fold = strings.ToLower
	}
	switch p := m.PathSpecifier.(type) {
	case *routev3.RouteMatch_Prefix:
		return strings.HasPrefix(fold(path), fold(p.Prefix))
	case *routev3.RouteMatch_Path:
		return fold(path) == fold(p.Path)
	case *routev3.RouteMatch_SafeRegex:
		return fullMatch(p.SafeRegex.Regex, path)
	}
	return false
}

func headersMatch(m *routev3.RouteMatch, headers map[string]string) bool {
	for _, h := range m.Headers {
		value, there := headers[strings.ToLower(h.Name)]
		if !there && h.TreatMissingHeaderAsEmpty {
			value, there = "", true
		}
		matches := there && (h.GetPresentMatch() || stringMatches(h.GetStringMatch(), value))
		if !there && h.InvertMatch && !h.GetPresentMatch() {
			return false // Envoy: a missing header matches neither way, unless presence is asked
		}
		if matches == h.InvertMatch {
			return false
		}
	}
	return true
}

func queryMatches(m *routev3.RouteMatch, params url.Values) bool {
	for _, q := range m.QueryParameters {
		if !params.Has(q.Name) || !q.GetPresentMatch() && !stringMatches(q.GetStringMatch(), params.Get(q.Name)) {
			return false
		}
	}
	return true
}

func stringMatches(m *matcherv3.StringMatcher, value string) bool {
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		return value == p.Exact
	case *matcherv3.StringMatcher_Prefix:
		return strings.HasPrefix(value, p.Prefix)
	case *matcherv3.StringMatcher_SafeRegex:
		return fullMatch(p.SafeRegex.Regex, value)
	}
	return false
}

func fullMatch(pattern, value string) bool {
	return regexp.MustCompile(`^(?:` + pattern + `)$`).MatchString(value)
}

// hashed is a destination as the plan makes it for a rule with a consistent hash.
func hashed(d Destination, rule *model.DestinationRule) Destination {
	of, at := subsetOf(rule, d.Subset)
	if d.Hash = traffic.Effective(rule, of, at, cmp.Or(d.Cluster.Port, d.Port)).Balancer.GetConsistentHash(); d.Hash != nil {
		d.Rule = rule
	}
	return d
}

// subsetOf returns the rule and the place of a subset, the arguments of traffic.Effective. It returns nil if the rule
// has no subset of the name.
func subsetOf(rule *model.DestinationRule, name string) (*model.DestinationRule, int) {
	if rule != nil {
		for i, s := range rule.Spec.GetSubsets() {
			if s.GetName() == name {
				return rule, i
			}
		}
	}
	return nil, 0
}
