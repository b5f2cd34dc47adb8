package inspect

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1alpha3"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"navarch.io/navarch/push/build/cluster"
	"navarch.io/navarch/push/build/listener"
	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

func resource(t *testing.T, kind xds.Type, name string, m proto.Message) *xds.Resource {
	t.Helper()
	r, err := xds.Encode(kind, name, m)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// standing is a proxy with a cluster and a secret; it refused a cluster, and another is withheld.
func standing(t *testing.T) Stream {
	t.Helper()
	var held Resources
	held[xds.Cluster] = []*xds.Resource{resource(t, xds.Cluster, "a", &clusterv3.Cluster{Name: "a"})}
	held[xds.Secret] = []*xds.Resource{resource(t, xds.Secret, "key", &tlsv3.Secret{Name: "key", Type: &tlsv3.Secret_GenericSecret{
		GenericSecret: &tlsv3.GenericSecret{Secret: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: "hunter2"}}}}})}
	web := Stream{Proxy: "web.shop", Node: "sidecar~1.1.1.1~web.shop~x", Identity: "spiffe://x", Address: "1.1.1.1:5", Cluster: "c1", Version: "1.30",
		Connected: time.Unix(2, 0).UTC(), Revision: 7, Held: func() Resources { return held },
		Planned: func(k xds.Type, name string) *xds.Resource {
			r, err := xds.EncodeAs(k, name, "v", &clusterv3.Cluster{Name: name, AltStatName: "planned"})
			if err != nil {
				t.Fatal(err)
			}
			r.Confidential = false // the version alone is what it is made for
			return r
		},
		Explain: func() (*manifest.Set, Specs, error) {
			set := &manifest.Set{}
			set.Types[xds.Cluster][manifest.Scope] = manifest.Of(held[xds.Cluster][0])
			return set, func(xds.Type, string) []any { return []any{struct{ Host string }{"a.shop"}} }, nil
		}}
	web.Types[xds.Cluster] = TypeStatus{Subscribed: true, Sent: "n2", Acked: "n1",
		Refused: []Refused{{Name: "b", Version: "v", Good: "g", Text: "no", Last: time.Unix(3, 0).UTC(), Objects: []string{"EnvoyFilter shop/f"}}},
		Withheld: []Withheld{{Name: "a", Version: "w", Good: "g", RefusedBy: 3, First: time.Unix(4, 0).UTC(), Last: time.Unix(5, 0).UTC(), Text: "bad",
			Objects: []string{"DestinationRule shop/a"}}}}
	return web
}

// chainOf is a filter chain that needs one secret, named by a server of a Gateway.
type chainOf struct{ secret string }

func (c chainOf) Naming(secret string) []model.Place {
	if secret != c.secret {
		return nil
	}
	return []model.Place{{Key: model.Key{Kind: model.KindGateway, Namespace: "shop", Name: "front"}, Field: "spec.servers[1]"}}
}

// stand is a server of pages with three proxies, one of which is standing.
func stand(t *testing.T) *httptest.Server {
	t.Helper()
	web := standing(t)
	l := resource(t, xds.Listener, "l", &listenerv3.Listener{Name: "l"})
	gateway := Stream{Proxy: "gw.shop", Node: "router~1.1.1.3~gw.shop~x", Connected: time.Unix(3, 0).UTC(),
		Explain: func() (*manifest.Set, Specs, error) {
			set := &manifest.Set{}
			set.Types[xds.Listener][manifest.Scope] = manifest.Of(l)
			return set, func(xds.Type, string) []any { return []any{struct{}{}, chainOf{"kubernetes://site"}} }, nil
		},
		Secret: func(string) (Standing, bool) { return Standing{State: "sent", Wanted: []string{}}, true }}
	gateway.Types[xds.Secret] = TypeStatus{Subscribed: true, Sent: "n1", Acked: "n1", Synced: true}
	db := Stream{Proxy: "db.shop", Node: "sidecar~1.1.1.2~db.shop~x", Connected: time.Unix(1, 0).UTC(),
		Explain: func() (*manifest.Set, Specs, error) { return nil, nil, errors.New("lost it") },
		Secret: func(name string) (Standing, bool) {
			return Standing{State: "withheld", Why: "it is no gateway", Wanted: []string{}}, name == "kubernetes://site"
		}}
	snapshot := mirror.Empty().Apply(9, nil, nil).New
	s := httptest.NewServer(Handler(Config{ID: "replica-1", Version: "v1",
		Streams:  func(string) []Stream { return []Stream{web, db, gateway} },
		Snapshot: func() *mirror.Snapshot { return snapshot },
		Problems: func() []Problem {
			return []Problem{{Object: "VirtualService shop/web", Field: "spec.hosts", Code: problem.Required, Severity: problem.Error, Message: "empty"}}
		},
	}))
	t.Cleanup(s.Close)
	return s
}

func visit(t *testing.T, s *httptest.Server, path string) (int, string) {
	t.Helper()
	res, err := http.Get(s.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// Every page has the fields that tools read.
func TestPages(t *testing.T) {
	s := stand(t)
	for path, want := range map[string]string{
		"/debug/syncz": `[{"proxy": "db.shop", "proxy_type": "sidecar", "revision": 0},
			{"proxy": "gw.shop", "proxy_type": "router", "revision": 0, "secret_sent": "n1", "secret_acked": "n1", "secret_synced": true},
			{"proxy": "web.shop", "proxy_type": "sidecar", "cluster_id": "c1", "istio_version": "1.30", "revision": 7, "cluster_sent": "n2", "cluster_acked": "n1", "cluster_synced": false,
			 "cluster_refused": [{"name": "b", "version": "v", "last_good_version": "g", "error": "no", "last_refusal": "1970-01-01T00:00:03Z", "objects": ["EnvoyFilter shop/f"]}],
			 "cluster_withheld": [{"name": "a", "version": "w", "last_good_version": "g", "refused_by": 3, "first_refusal": "1970-01-01T00:00:04Z",
			  "last_refusal": "1970-01-01T00:00:05Z", "error": "bad", "objects": ["DestinationRule shop/a"]}]}]`,
		"/debug/connections": `{"totalClients": 3, "clients": [
			{"proxy": "db.shop", "node": "sidecar~1.1.1.2~db.shop~x", "address": "", "connectedAt": "1970-01-01T00:00:01Z"},
			{"proxy": "gw.shop", "node": "router~1.1.1.3~gw.shop~x", "address": "", "connectedAt": "1970-01-01T00:00:03Z"},
			{"proxy": "web.shop", "node": "sidecar~1.1.1.1~web.shop~x", "identity": "spiffe://x", "address": "1.1.1.1:5", "connectedAt": "1970-01-01T00:00:02Z"}]}`,
		"/debug/problems": `[{"object": "VirtualService shop/web", "field": "spec.hosts", "code": "Required", "severity": "error", "message": "empty"}]`,
	} {
		status, body := visit(t, s, path)
		var got, expected any
		if err := json.Unmarshal([]byte(want), &expected); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(body), &got); status != http.StatusOK || err != nil || !reflect.DeepEqual(got, expected) {
			t.Errorf("%s: %d %v\ngot %s\nwant %s", path, status, err, body, want)
		}
		if strings.Contains(body, "hunter2") {
			t.Errorf("%s shows a secret", path)
		}
	}
	if _, body := visit(t, s, "/debug/explain?proxyID=web.shop&resource=a"); !strings.Contains(body, `"field": "host"`) || !strings.Contains(body, `"a.shop"`) {
		t.Errorf("explain: %s", body)
	}
	if _, body := visit(t, s, "/debug/explain?proxyID=db.shop&resource=kubernetes://site"); !strings.Contains(body, `"state": "withheld"`) ||
		!strings.Contains(body, `"why": "it is no gateway"`) || !strings.Contains(body, `"wanted_by": []`) {
		t.Errorf("explain a Secret: %s", body)
	}
	for secret, want := range map[string]bool{"site": true, "other": false} {
		_, body := visit(t, s, "/debug/explain?proxyID=gw.shop&resource=kubernetes://"+secret)
		if named := strings.Contains(body, `"Gateway shop/front spec.servers[1]"`); named != want || !strings.Contains(body, `"state": "sent"`) {
			t.Errorf("explain Secret %s of a gateway: %s", secret, body)
		}
	}
	if status, body := visit(t, s, "/debug/explain?proxyID=web.shop&resource=kubernetes://site"); status != http.StatusNotFound {
		t.Errorf("explain a Secret of a proxy that knows none: %d %s", status, body)
	}
	if _, body := visit(t, s, "/debug/snapshot"); !strings.Contains(body, `"revision": 9`) || !strings.Contains(body, `"VirtualService": 0`) || !strings.Contains(body, "replica-1") {
		t.Errorf("snapshot: %s", body)
	}
}

// The list names every page, and every page in it exists; a page without data responds with the reason.
func TestListAndErrors(t *testing.T) {
	s := stand(t)
	_, body := visit(t, s, "/debug/list")
	if _, short := visit(t, s, "/debug/"); short != body {
		t.Errorf("/debug/ differs from /debug/list: %s", short)
	}
	named := 0
	for line := range strings.Lines(body) {
		path := strings.Fields(line)[0]
		if strings.Contains(path, "pprof") {
			continue // served beside these pages
		}
		named++
		if status, text := visit(t, s, path); status == http.StatusNotFound && !strings.Contains(text, "proxy") {
			t.Errorf("%s is listed and not there", path)
		}
	}
	if named != len(pages) {
		t.Errorf("%d of %d pages are listed", named, len(pages))
	}
	for path, want := range map[string]struct {
		status int
		text   string
	}{
		"/debug/config_dump":                              {400, "proxyID is needed"},
		"/debug/config_dump?proxyID=no.one":               {404, `proxy "no.one" is not connected`},
		"/debug/config_dump?proxyID=web.shop&types=cloud": {400, `unknown type "cloud"`},
		"/debug/explain?proxyID=web.shop&resource=zzz":    {404, `has no resource "zzz"`},
		"/debug/explain?proxyID=db.shop&resource=a":       {500, "lost it"},
		"/debug/nothing":                                  {404, "not found"},
	} {
		if status, body := visit(t, s, path); status != want.status || !strings.Contains(body, want.text) {
			t.Errorf("%s: %d %s, want %d %s", path, status, body, want.status, want.text)
		}
	}
	empty := httptest.NewServer(Handler(Config{Streams: func(string) []Stream { return nil }, Snapshot: func() *mirror.Snapshot { return nil }, Problems: func() []Problem { return nil }}))
	defer empty.Close()
	for path, want := range map[string]string{"/debug/syncz": "[]", "/debug/problems": "[]", "/debug/snapshot": "there is no complete snapshot yet"} {
		if _, body := visit(t, empty, path); strings.TrimSpace(body) != want {
			t.Errorf("%s of nothing: %s", path, body)
		}
	}
}

// The likeliest cause comes first; of many virtual hosts only those in the proxy's error count; a long list is cut.
func TestBlame(t *testing.T) {
	made := func(kind model.Kind, name string, m proto.Message) model.Record {
		r, err := model.New(model.Key{Kind: kind, Namespace: "shop", Name: name}, 0, m)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	filter := made(model.KindEnvoyFilter, "f", &networkingv1.EnvoyFilter{}).(*model.EnvoyFilter)
	rule := made(model.KindDestinationRule, "r", &networkingv1.DestinationRule{Host: "a"}).(*model.DestinationRule)
	mesh := mirror.Empty().Mesh()
	var patches intern.Table[model.Patch]
	var routes intern.Table[*model.VirtualService]
	blamed := func(specs []any, text string) (out []string) {
		for _, at := range Blame(specs, text) {
			out = append(out, at.String())
		}
		return out
	}
	got := blamed([]any{cluster.Outbound{Host: "a", Rule: rule, Mesh: mesh, Patches: patches.List(model.Patch{Filter: filter, Index: 3})}}, "no")
	if want := []string{"EnvoyFilter shop/f spec.configPatches[3]", "DestinationRule shop/r"}; !reflect.DeepEqual(got, want) {
		t.Errorf("a cluster: got %q, want %q", got, want)
	}
	if got := blamed([]any{cluster.Static{Name: xds.BlackHole, Mesh: mesh}}, "no"); len(got) != 1 || got[0] != "MeshConfig" {
		t.Errorf("nothing but the mesh: %q", got)
	}
	pooled := cluster.Inbound{Mesh: mesh, PoolAt: model.Place{Key: rule.Key, Field: "spec.trafficPolicy.connectionPool"}}
	if got := blamed([]any{pooled}, "no"); !reflect.DeepEqual(got, []string{"DestinationRule shop/r spec.trafficPolicy.connectionPool"}) {
		t.Errorf("an inbound cluster: %q", got)
	}
	service := made(model.KindService, "db", &model.ServiceSpec{}).(*model.Service)
	route := made(model.KindVirtualService, "db", &networkingv1.VirtualService{}).(*model.VirtualService)
	tcp := []any{listener.Outbound{Common: listener.Common{Mesh: mesh}}, plan.TrafficSource{Host: "db", Service: service, Routes: routes.List(route)}}
	if got := blamed(tcp, "no"); !reflect.DeepEqual(got, []string{"VirtualService shop/db", "Service shop/db"}) {
		t.Errorf("a listener for TCP: %q", got)
	}
	specs := []any{struct{ Name string }{"80"}}
	var ruled intern.Table[vhost.Rule]
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"} {
		vs := made(model.KindVirtualService, name, &networkingv1.VirtualService{Hosts: []string{name}}).(*model.VirtualService)
		specs = append(specs, vhost.Spec{Host: name + ".shop.svc.cluster.local", Rules: ruled.List(vhost.Rule{VirtualService: vs})})
	}
	merged := made(model.KindVirtualService, "db", &networkingv1.VirtualService{Http: []*networkingv1.HTTPRoute{{}, {Delegate: &networkingv1.Delegate{Namespace: "team", Name: "leaf"}}}}).(*model.VirtualService)
	if got := blamed([]any{vhost.Spec{Host: "db", Rules: ruled.List(vhost.Rule{VirtualService: merged}, vhost.Rule{VirtualService: merged, Index: 1})}}, "no"); !reflect.DeepEqual(got, []string{"VirtualService shop/db", "VirtualService team/leaf"}) {
		t.Errorf("a route with a delegate: %q", got)
	}
	if got := Inputs(vhost.Spec{Rules: ruled.List(vhost.Rule{VirtualService: merged}, vhost.Rule{VirtualService: merged, Index: 1})})[0].Values; !reflect.DeepEqual(got, []string{"VirtualService shop/db spec.http", "VirtualService team/leaf"}) {
		t.Errorf("made of: %q", got)
	}
	if got := blamed(specs, "duplicate domain c.shop.svc.cluster.local"); !reflect.DeepEqual(got, []string{"VirtualService shop/c"}) {
		t.Errorf("a route with words: %q", got)
	}
	if got := blamed(specs, "no"); len(got) != maxBlamed {
		t.Errorf("a route without: %q", got)
	}
	if got := blamed(nil, "no"); len(got) != 0 {
		t.Errorf("nothing: %q", got)
	}
}
