package report

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/proxyconfig"
)

const hidden = "hunter2hunter2"

var when = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// archive returns an archive of a process with proxies and records.
func archive(t testing.TB) []byte {
	t.Helper()
	vs, err := model.New(model.Key{Kind: model.KindVirtualService, Namespace: "shop", Name: "web"}, 1, &networkingv1.VirtualService{
		Hosts: []string{"web"}, Http: []*networkingv1.HTTPRoute{{Headers: &networkingv1.Headers{Request: &networkingv1.Headers_HeaderOperations{
			Set: map[string]string{"authorization": hidden}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	secret, err := model.New(model.Key{Kind: model.KindSecret, Namespace: "shop", Name: "cert"}, 1,
		&model.SecretSpec{Chain: []byte("chain"), Key: []byte("sealed" + hidden), Mac: []byte(hidden)})
	if err != nil {
		t.Fatal(err)
	}
	one, err := xds.Encode(xds.Cluster, "a", &clusterv3.Cluster{Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	two, err := xds.Encode(xds.Cluster, "b", &clusterv3.Cluster{Name: "b", AltStatName: "Bearer " + hidden})
	if err != nil {
		t.Fatal(err)
	}
	sets := &Sets{}
	both := inspect.Resources{xds.Cluster: {one, two}}
	first, second := sets.Add(both), sets.Add(inspect.Resources{xds.Cluster: {two}})
	node := view.Node{ID: "sidecar~1", Name: "web-0", Namespace: "shop", Labels: map[string]string{"app": "web"},
		Metadata: map[string]string{"NPM_TOKEN": hidden}, Verified: view.Identity{Namespace: "shop", Account: "web"},
		ProxyConfig: &proxyconfig.Settings{HeaderCase: true, Tracing: "\xff\x00"}}
	w := NewPart("a/../b", when)
	for _, err := range []error{
		w.Facts(&Facts{Name: "a", Version: "v", Flags: []string{"--etcd-endpoints=https://u:" + hidden + "@e"}}),
		w.Records(mirror.Empty().Apply(7, []model.Record{vs, secret}, nil).New),
		w.Proxies([]Proxy{{Node: Node(node), Set: first, Connected: when, Types: map[string]State{"cluster": {Synced: true, Sent: "1"}}},
			{Node: Node(node), Set: second}, {Node: Node(node), Set: -1}}, sets),
		w.JSON("problems.json", []inspect.Problem{{Object: "x", Message: "token: Bearer " + hidden}}),
		w.Text("log.txt", []byte("password="+hidden)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	part, err := w.Member(false)
	if err != nil {
		t.Fatal(err)
	}
	end := NewWriter(when)
	if err := end.Index(Index{Contents: Full, Created: when, Missing: []Missing{{"c", "no answer"}}}); err != nil {
		t.Fatal(err)
	}
	if err := end.Envoys([]Envoy{{Proxy: "web-0.shop", File: EnvoyFile("web-0.shop")}},
		map[string][]byte{EnvoyFile("web-0.shop"): []byte(`{"password":"` + hidden + `"}`)}); err != nil {
		t.Fatal(err)
	}
	last, err := end.Member(true)
	if err != nil {
		t.Fatal(err)
	}
	return append(part, last...)
}

// Promise: bug-report.md#no-secret
func TestRoundTrip(t *testing.T) {
	raw := archive(t)
	r, err := Read(bytes.NewReader(raw), Usual)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Processes) != 1 || r.Snapshot.Revision() != 7 || len(r.Index.Missing) != 1 || len(r.Envoys) != 1 {
		t.Fatalf("%+v", r)
	}
	p := r.Processes[0]
	n := view.Node(p.Proxies[0].Node)
	if n.Metadata["NPM_TOKEN"] == hidden || n.Verified != (view.Identity{Namespace: "shop", Account: "web"}) ||
		*n.ProxyConfig != (proxyconfig.Settings{HeaderCase: true, Tracing: "\xff\x00"}) || n.Labels["app"] != "web" {
		t.Errorf("%+v", n)
	}
	if types := p.Proxies[0].Statuses(); !types[xds.Cluster].Synced || types[xds.Listener].Subscribed {
		t.Errorf("%+v", types)
	}
	for i, want := range []string{"[a b]", "[b]", "[]"} {
		held, ok := p.Held.Set(p.Proxies[i].Set)
		names := []string{}
		for _, r := range held[xds.Cluster] {
			names = append(names, r.Name)
		}
		if fmt.Sprint(names) != want || ok != (i < 2) {
			t.Errorf("set %d is %v, %v", i, names, ok)
		}
	}
	gz, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(gz)
	if err != nil {
		t.Fatal(err)
	}
	if at := bytes.Index(all, []byte(hidden)); at >= 0 {
		t.Errorf("it has the secret: %q", all[max(0, at-100):at+20])
	}
	secret, ok := r.Snapshot.Get(model.Key{Kind: model.KindSecret, Namespace: "shop", Name: "cert"})
	if !ok || string(secret.(*model.Secret).Spec.GetKey()) != NoKey {
		t.Errorf("%v", secret)
	}
}

// All fields of a node are written, but for those that the configuration decides.
func TestNodeIsWhole(t *testing.T) {
	kept := reflect.TypeFor[view.Node]()
	have := reflect.TypeFor[node]()
	for i := range kept.NumField() {
		if _, ok := have.FieldByName(kept.Field(i).Name); !ok {
			t.Errorf("field %s is not written", kept.Field(i).Name)
		}
	}
}

// member returns an archive of entries.
func member(t testing.TB, entries map[string]string) []byte {
	t.Helper()
	w := NewWriter(when)
	for name, content := range entries {
		if err := w.Add(name, []byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := w.Member(true)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// numbered returns the fields "0":{} to "n-1":{}.
func numbered(n int) string {
	fields := make([]string, n)
	for i := range fields {
		fields[i] = fmt.Sprintf(`"%d":{}`, i)
	}
	return strings.Join(fields, ",")
}

// Promise: bug-report.md#bounds-of-a-report-of-others
func TestHostileArchives(t *testing.T) {
	index := `{"schema":"` + Schema + `"}`
	small := Usual
	small.Decompressed, small.Entries, small.Proxies, small.Texts, small.Refusals, small.Page, small.Processes = 1<<20, 20, 3, 10, 5, 1000, 2
	line := `{"node":{"ID":"a","Labels":{"a":"b"}},"types":{}}` + "\n"
	bomb := &bytes.Buffer{}
	gz := gzip.NewWriter(bomb)
	tw := tar.NewWriter(gz)
	if err := tw.WriteHeader(&tar.Header{Name: "processes/a/proxies.jsonl", Size: 1 << 30, Mode: 0o600}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(tw, zeros{}, 8<<20); err != nil {
		t.Fatal(err)
	}
	gz.Close()
	many := map[string]string{indexName: index}
	for i := range 30 {
		many[fmt.Sprint("x", i)] = ""
	}
	for name, c := range map[string]struct {
		raw  []byte
		says string
	}{
		"no archive":      {[]byte("hello"), "not an archive"},
		"a bomb":          {bomb.Bytes(), "not a file of a possible size"},
		"no index":        {member(t, map[string]string{"a": ""}), "no index.json"},
		"another schema":  {member(t, map[string]string{indexName: `{"schema":"x"}`}), "schema"},
		"many entries":    {member(t, many), "more than 20 entries"},
		"many proxies":    {member(t, map[string]string{indexName: index, "processes/a/proxies.jsonl": strings.Repeat(line, 4)}), "more than 3 proxies"},
		"many processes":  {member(t, map[string]string{indexName: index, "processes/a/x.json": "1", "processes/b/x.json": "1", "processes/c/x.json": "1"}), "more than 2 processes"},
		"a large page":    {member(t, map[string]string{indexName: index, "processes/a/x.json": `"` + strings.Repeat("x", 2000) + `"`}), "at most 1000"},
		"a process alone": {member(t, map[string]string{indexName: index, "processes/a/x.json": "1"}), "has no process.json"},
		"many resources":  {member(t, map[string]string{indexName: index, "processes/a/held.bin": "\xff\xff\xff\xff\x7f"}), "resources"},
		"many types": {member(t, map[string]string{indexName: index,
			"processes/a/proxies.jsonl": `{"types":{` + numbered(100) + `}}`}), "100 types"},
		"cut records": {member(t, map[string]string{indexName: index, "processes/a/records.bin": "navarch snapshot 1\n{"}), "head"},
		"large":       {member(t, map[string]string{indexName: index, "processes/a/log.txt": strings.Repeat("x", 2<<20)}), "not a file of a possible size"},
	} {
		if _, err := Read(bytes.NewReader(c.raw), small); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want %q", name, err, c.says)
		}
	}
	tiny := Usual
	tiny.Compressed = 100
	if _, err := Read(bytes.NewReader(archive(t)), tiny); err == nil || !strings.Contains(err.Error(), "exceeds the limit of 100 bytes") {
		t.Errorf("compressed: %v", err)
	}
}

// heldOf is a held.bin with n resources without names and bodies, and as many empty lists and sets.
func heldOf(n byte) string {
	return string([]byte{n}) + strings.Repeat("\x00\x00\x00\x00", int(n)) + string([]byte{n}) + strings.Repeat("\x00", int(n)) +
		string([]byte{n}) + strings.Repeat(strings.Repeat("\x00", int(xds.NumTypes)), int(n))
}

// The bounds hold for the archive, not for each of its entries.
// Promise: bug-report.md#bounds-of-a-report-of-others
func TestBoundsOfTheArchive(t *testing.T) {
	long := `"` + strings.Repeat("x", 600) + `"`
	for name, c := range map[string]struct {
		entry, content string
		lower          func(*Limits)
		says           string
	}{
		"resources":      {"held.bin", heldOf(3), func(l *Limits) { l.Resources = 5 }, "resources: 3, at most 2"},
		"lists":          {"held.bin", heldOf(3), func(l *Limits) { l.Lists = 5 }, "lists: 3, at most 2"},
		"sets":           {"held.bin", heldOf(3), func(l *Limits) { l.Sets = 5 }, "sets: 3, at most 2"},
		"bytes of sets":  {"held.bin", heldOf(3), func(l *Limits) { l.Held = 50 }, "left for entries of this kind"},
		"bytes of pages": {"x.json", long, func(l *Limits) { l.Pages = 1000 }, "left for entries of this kind"},
		"bytes of facts": {"process.json", `{"name":` + long + `}`, func(l *Limits) { l.Facts = 1000 }, "left for entries of this kind"},
	} {
		entries := func(names ...string) []byte {
			all := map[string]string{indexName: `{"schema":"` + Schema + `"}`}
			for _, p := range names {
				all["processes/"+p+"/process.json"] = `{"name":"a"}`
				all["processes/"+p+"/"+c.entry] = c.content
			}
			return member(t, all)
		}
		l := Usual
		c.lower(&l)
		if _, err := Read(bytes.NewReader(entries("a")), l); err != nil {
			t.Errorf("%s of one: %v", name, err)
		}
		if _, err := Read(bytes.NewReader(entries("a", "b")), l); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s of two: %v; want %q", name, err, c.says)
		}
	}
}

// A held.bin that states more than it has costs no memory, and is refused where it ends.
func TestHeldEndsEarly(t *testing.T) {
	many, zeros := "\x80\x80\x40", strings.Repeat("\x00", 1<<20)
	for name, raw := range map[string]string{"resources": many, "lists": "\x00" + many, "sets": "\x00\x00" + many,
		"a body": "\x01\x00\x00\x00\xff\xff\xff\x1f", "zeros": zeros, "a type": "\x01\xff\x00\x00\x00"} {
		limits := Usual
		if _, err := decodeHeld(strings.NewReader(raw), int64(len(raw)), &limits); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// Of repeated entries the last one counts, as a whole: fields that it omits are not those of an earlier one.
func TestRepeatedEntries(t *testing.T) {
	w := NewWriter(when)
	for _, e := range [][2]string{
		{indexName, `{"schema":"` + Schema + `","missing":[{"name":"c","reason":"x"}]}`}, {indexName, `{"schema":"` + Schema + `"}`},
		{"processes/a/process.json", `{"name":"a","flags":["--x"]}`}, {"processes/a/process.json", `{"name":"b"}`},
		{envoysName, `[{"proxy":"p","error":"x"}]`}, {envoysName, `[{"proxy":"q"}]`},
	} {
		if err := w.Add(e[0], []byte(e[1])); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := w.Member(true)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Read(bytes.NewReader(raw), Usual)
	if err != nil {
		t.Fatal(err)
	}
	if p := r.Processes[0]; len(r.Index.Missing) != 0 || p.Name != "b" || len(p.Flags) != 0 || r.Envoys[0] != (Envoy{Proxy: "q"}) {
		t.Errorf("%+v, %+v, %+v", r.Index, p.Facts, r.Envoys)
	}
}

// zeros reads zeros.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func FuzzRead(f *testing.F) {
	f.Add(archive(f))
	f.Add(member(f, map[string]string{indexName: `{"schema":"` + Schema + `"}`, "processes/a/held.bin": "\x01\x00\x01a\x011\x00\x01\x01\x02\x01\x00\x00\x00\x00\x00\x00"}))
	limits := Usual
	limits.Decompressed = 4 << 20
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := Read(bytes.NewReader(raw), limits)
		if err != nil {
			return
		}
		for _, p := range r.Processes {
			for i := range p.Held.Len() {
				p.Held.Set(i)
			}
		}
	})
}

// FuzzHeld decodes held.bin without a checksum of gzip before it.
func FuzzHeld(f *testing.F) {
	f.Add([]byte("\x01\x00\x01a\x011\x00\x01\x01\x02\x01\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		limits := Usual
		h, err := decodeHeld(bytes.NewReader(raw), int64(len(raw)), &limits)
		if err != nil {
			return
		}
		for i := range h.Len() {
			h.Set(i)
		}
	})
}
