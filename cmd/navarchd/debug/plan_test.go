package debug

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/cmd/navarchd/debug/authz"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/preview"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/admit/validate"
	"navarch.io/navarch/store/ingest"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/source/files"
)

// standing is a source with one snapshot.
type standing struct{ box *loop.Box[mirror.Change] }

func (s standing) Current() *mirror.Snapshot                     { return nil }
func (s standing) Subscribe() (*loop.Box[mirror.Change], func()) { return s.box, func() {} }

const shopService = "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {clusterIP: 10.96.0.1, ports: [{name: http, port: 80}]}}\n"

// replicaOf returns the pages of a replica with objects and with one proxy in each namespace.
func replicaOf(t *testing.T, objects string, namespaces ...string) *Pages {
	t.Helper()
	return smallReplicaOf(t, 0, objects, namespaces...)
}

// smallReplicaOf is replicaOf with plan.Config.Room.
func smallReplicaOf(t *testing.T, room int, objects string, namespaces ...string) *Pages {
	t.Helper()
	var proxies []view.Node
	for _, namespace := range namespaces {
		proxies = append(proxies, view.Node{ID: "sidecar~10.9.0.1~p." + namespace, Name: "p", Namespace: namespace, Domain: view.DefaultDomain,
			Caps: xds.StockCaps})
	}
	return replicaWith(t, room, objects, proxies...)
}

// replicaWith is smallReplicaOf with any proxies.
func replicaWith(t *testing.T, room int, objects string, proxies ...view.Node) *Pages {
	t.Helper()
	events, _ := files.Parse("x", []byte(objects))
	records, _ := ingest.Records(events, normal.Options{})
	src := standing{loop.NewBox(mirror.Merge)}
	src.box.Put(mirror.Empty().Apply(7, records, nil))
	l, err := plan.NewLoop(plan.Config{Source: src, Room: room, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = l.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	for _, n := range proxies {
		if _, err := l.Join(t.Context(), n, func(plan.Path) {}); err != nil {
			t.Fatal(err)
		}
	}
	judge := func(model.Record, *mirror.Snapshot) (refused, warned []error) { return nil, nil }
	proposals := validate.New(normal.New(normal.Options{}), func() *meshv1.MeshConfig { return nil }, nil, nil, judge)
	return New(Pages{Rules: &authz.Authorizer{Open: true}, Previewer: &Previewer{Base: l.Base, Afford: l.Afford, Proposals: proposals}})
}

// route is a VirtualService of a namespace that all namespaces see.
func route(namespace string) string {
	return fmt.Sprintf("{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: r, namespace: %s}, "+
		"spec: {hosts: [web.shop.svc.cluster.local], http: [{timeout: 3s, route: [{destination: {host: web.shop.svc.cluster.local}}]}]}}", namespace)
}

func postPlan(p *Pages, who authz.Caller, query string, body io.Reader) (int, string, *preview.Report) {
	data, done, status, err := p.PlanBody(context.Background(), who, httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", body))
	defer done()
	if err != nil {
		return status, err.Error(), nil
	}
	q, err := url.ParseQuery(strings.TrimPrefix(query, "?"))
	if err != nil {
		return http.StatusBadRequest, err.Error(), nil
	}
	r, status, err := p.Plan(context.Background(), who, data, q)
	if err != nil {
		return status, err.Error(), nil
	}
	text, err := json.Marshal(r)
	if err != nil {
		return http.StatusInternalServerError, err.Error(), nil
	}
	return status, string(text), r
}

// tenantOf sees its own namespace alone.
func tenantOf(namespace string) authz.Caller {
	return authz.Caller{Name: "spiffe://cluster.local/ns/" + namespace + "/sa/a", Tenant: namespace, Sees: func(of string) bool { return of == namespace }}
}

// The page previews objects for the proxies that its caller sees. A tenant's answer has nothing of others, and does not
// depend on others' objects and proxies.
func TestPlanPage(t *testing.T) {
	p := replicaOf(t, shopService, "shop", "pay")
	status, _, r := postPlan(p, authz.Caller{}, "", strings.NewReader(route("shop")))
	if status != http.StatusOK || r.Revision != 7 || r.Proxies != 2 || len(r.Affected) != 2 || r.Objects[0].Act != preview.Created {
		t.Fatalf("%d %+v", status, r)
	}
	_, own, r := postPlan(p, tenantOf("shop"), "", strings.NewReader(route("shop")))
	if r.Proxies != 1 || r.Views != 1 || len(r.Affected) != 1 || r.Affected[0].Names[0] != "sidecar~10.9.0.1~p.shop" || strings.Contains(own, "pay") {
		t.Errorf("%s", own)
	}
	other := replicaOf(t, shopService+"---\n"+route("pay")+"\n---\n"+strings.ReplaceAll(shopService, "shop", "pay"), "shop", "pay", "more")
	second := strings.Replace(route("shop"), "name: r", "name: s", 1)
	if _, got, _ := postPlan(other, tenantOf("shop"), "", strings.NewReader(second)); strings.Contains(got, "pay") || strings.Contains(got, "more.") {
		t.Errorf("others are seen: %s", got)
	}
	alone := replicaOf(t, shopService, "shop")
	if _, got, _ := postPlan(alone, tenantOf("shop"), "", strings.NewReader(route("shop"))); got != own {
		t.Errorf("with others\n%s\nwithout\n%s", own, got)
	}
	if status, text, _ := postPlan(p, tenantOf("shop"), "", strings.NewReader(route("pay"))); status != http.StatusForbidden {
		t.Errorf("an object of another tenant: %d %s", status, text)
	}
}

// A preview is about the proxies of its scope, and names all proxies if it is asked to. It has the hashes of its
// objects and of those behind what changes. A tenant gets no hash of others' objects, and no hash depends on them.
func TestPlanOfAScope(t *testing.T) {
	p := replicaOf(t, shopService, "shop", "pay")
	for query, want := range map[string]string{"": "2 of 2", "?scope=mesh": "2 of 2", "?scope=namespace+pay": "1 of 1",
		"?scope=proxy+p.shop": "1 of 1", "?scope=proxy+q.shop": "0 of 0"} {
		_, text, r := postPlan(p, authz.Caller{}, query, strings.NewReader(route("shop")))
		if n, _, _ := r.Count(); fmt.Sprintf("%d of %d", n, r.Proxies) != want {
			t.Errorf("%s: %s", query, text)
		}
	}
	if status, text, _ := postPlan(p, authz.Caller{}, "?scope=shop", strings.NewReader(route("shop"))); status != http.StatusBadRequest ||
		!strings.Contains(text, `parameter scope "shop": want mesh`) {
		t.Errorf("%d %s", status, text)
	}
	_, text, r := postPlan(p, authz.Caller{}, "?proxies=true", strings.NewReader(route("shop")))
	if !r.AllNames || len(r.Touched) != 1 || r.Touched[0].Object != "Service shop/web" || r.Objects[0].Hash != "" {
		t.Errorf("%s", text)
	}
	known := replicaOf(t, shopService+"---\n"+route("shop"), "shop", "pay")
	_, text, r = postPlan(known, authz.Caller{}, "", strings.NewReader(strings.Replace(route("shop"), "3s", "4s", 1)))
	if r.Objects[0].Hash == "" || r.AllNames || len(r.Touched) != 1 {
		t.Errorf("%s", text)
	}
	if _, text, r := postPlan(p, tenantOf("pay"), "", strings.NewReader(route("pay"))); len(r.Affected) == 0 || len(r.Touched) != 0 {
		t.Errorf("%s", text)
	}
}

// The last objects of a request may be deleted by the change that applies the others.
func TestPlanRemovesTheLast(t *testing.T) {
	gone := strings.Replace(route("shop"), "name: r", "name: gone", 1)
	p := replicaOf(t, shopService+"---\n"+gone, "shop")
	_, text, r := postPlan(p, authz.Caller{}, "?removed=1", strings.NewReader(route("shop")+"\n---\n"+gone))
	if len(r.Objects) != 2 || r.Objects[0].Act != preview.Created || r.Objects[1].Act != preview.Deleted ||
		r.Objects[1].Object != "VirtualService shop/gone" {
		t.Errorf("%s", text)
	}
	for _, wrong := range []string{"2", "-1", "x"} {
		status, text, _ := postPlan(p, authz.Caller{}, "?removed="+wrong, strings.NewReader(route("shop")))
		if status != http.StatusBadRequest || !strings.Contains(text, "want 0 to 1, the number of the objects") {
			t.Errorf("removed=%s: %d %s", wrong, status, text)
		}
	}
}

// Requests that cannot be previewed say why.
func TestPlanPageRefuses(t *testing.T) {
	p := replicaOf(t, shopService, "shop")
	for _, one := range []struct {
		name, query, body string
		status            int
		want              string
	}{
		{"no object", "", "# nothing", http.StatusBadRequest, "no objects"},
		{"unreadable", "", "kind: [", http.StatusBadRequest, "objects#1: "},
		{"too large", "", strings.Repeat("#", MaxPlanBody+1), http.StatusRequestEntityTooLarge, "more than 4194304 bytes"},
		{"too many", "", strings.Repeat(route("shop")+"\n---\n", maxPlanObjects+1), http.StatusBadRequest, "at most 500"},
		{"too many documents", "", strings.Repeat("---\na: 1\n", maxDocuments+2), http.StatusBadRequest, "at most 500"},
		{"absent", "?delete=true", route("shop"), http.StatusOK, `"act":"refused"`},
		{"of Kubernetes", "", shopService, http.StatusOK, "not a kind and version of Istio"},
	} {
		status, text, _ := postPlan(p, authz.Caller{}, one.query, strings.NewReader(one.body))
		if status != one.status || !strings.Contains(text, one.want) {
			t.Errorf("%s: %d %.300s", one.name, status, text)
		}
	}
	without := New(Pages{Rules: &authz.Authorizer{Open: true}})
	if status, text, _ := postPlan(without, authz.Caller{}, "", strings.NewReader(route("shop"))); status != http.StatusNotFound {
		t.Errorf("without role xds: %d %s", status, text)
	}
}

// A client that does not send its body holds the turn of nobody else, and of its tenant a bounded number of places.
func TestSlowPlanBodies(t *testing.T) {
	p := replicaOf(t, shopService, "shop")
	var slow []*io.PipeWriter
	ended := make(chan int)
	for i := range maxPlanBodies {
		in, out := io.Pipe()
		slow = append(slow, out)
		who := tenantOf("shop")
		who.Name += fmt.Sprint(i)
		go func() {
			status, _, _ := postPlan(p, who, "", in)
			ended <- status
		}()
		_, _ = out.Write([]byte("#")) // returns once the request is being read
	}
	if status, text, _ := postPlan(p, tenantOf("shop"), "", strings.NewReader(route("shop"))); status != http.StatusTooManyRequests {
		t.Errorf("more of the tenant: %d %s", status, text)
	}
	if status, text, _ := postPlan(p, authz.Caller{Name: "system"}, "", strings.NewReader(route("shop"))); status != http.StatusOK {
		t.Errorf("somebody else: %d %s", status, text)
	}
	for _, out := range slow {
		_ = out.Close()
		if status := <-ended; status != http.StatusBadRequest {
			t.Errorf("an empty body: %d", status)
		}
	}
}

// A change for which the process has no memory is not planned. The caller learns which object is too heavy.
func TestPlanTooHeavy(t *testing.T) {
	p := smallReplicaOf(t, 2000, shopService, "shop")
	var b strings.Builder
	b.WriteString("{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: big, namespace: shop}, spec: {resolution: DNS, hosts: [")
	for i := range 64 {
		fmt.Fprintf(&b, "h%d.example.com, ", i)
	}
	b.WriteString("], ports: [")
	for i := range 64 {
		fmt.Fprintf(&b, "{name: p%d, number: %d, protocol: HTTP}, ", i, 8000+i)
	}
	b.WriteString("]}}")
	status, text, _ := postPlan(p, tenantOf("shop"), "", strings.NewReader(b.String()))
	if status != http.StatusRequestEntityTooLarge || !strings.Contains(text, "no memory for the change") || !strings.Contains(text, "shop/big") {
		t.Errorf("%d %.300s", status, text)
	}
	if status, text, _ := postPlan(p, tenantOf("shop"), "", strings.NewReader(route("shop"))); status != http.StatusOK {
		t.Errorf("a light one: %d %.300s", status, text)
	}
}

// NP506: an object that its tenant's budget would not permit is a risk, unlike one that it would permit. The
// function is called with the snapshot before the change.
func TestPlanBeyondBudget(t *testing.T) {
	p := replicaOf(t, shopService, "shop")
	limit := 1
	p.Previewer.Budgets = func(proposed []ingest.Proposed, known *mirror.Snapshot) []object.Problem {
		var stored []model.Record
		for r := range known.All(model.KindService) {
			stored = append(stored, r)
		}
		return ingest.Exceeding(ingest.Budget{Objects: limit}, proposed, stored, "istio-system", "istio-system",
			func(namespace string) string { return namespace })
	}
	codes := func(query string) (codes []string) {
		_, text, r := postPlan(p, authz.Caller{}, query, strings.NewReader(route("shop")))
		if r == nil {
			t.Fatal(text)
		}
		for _, one := range r.Risks {
			codes = append(codes, string(one.Code)+" "+one.Level+" "+strings.Join(one.Objects, ","))
		}
		return codes
	}
	const risk = "NP506 high VirtualService shop/r"
	if got := codes(""); !slices.Contains(got, risk) {
		t.Errorf("beyond the budget: %v", got)
	}
	if limit = 2; slices.Contains(codes(""), risk) {
		t.Error("within the budget")
	}
}
