package suggest

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"
)

// mesh is a configuration: services of three namespaces, an alias, a route to another service, one to a service that
// nobody uses.
func mesh() Config {
	all := []string{"*"}
	return Config{Root: "istio-system", Services: []Service{
		{"shop", []string{"web.shop"}, all, ""}, {"books", []string{"catalog.books"}, all, ""}, {"books", []string{"search.books"}, all, ""},
		{"books", []string{"private.books"}, []string{"books"}, ""}, {"legacy", []string{"books.legacy"}, all, "catalog.books"},
		{"ext", []string{"*.ext.org"}, all, ""}, {"bank", []string{"ledger.bank"}, []string{"shop"}, ""},
	}, Routes: []Route{
		{"VirtualService books/names", "books", all, []string{"books.example"}, []string{"catalog.books", "search.books"}},
		{"VirtualService bank/l", "bank", all, []string{"ledger.bank"}, []string{"ledger.bank"}},
		{"VirtualService books/own", "books", []string{"."}, []string{"own.example"}, []string{"catalog.books", "search.books"}},
	}}
}

// The hosts of used clusters are imported from where they are visible, with the names that lead to them; hosts that are
// only routed to are named.
func TestSidecars(t *testing.T) {
	usage := func(namespace string, hours int, used ...string) Usage {
		return Usage{Proxy: "p." + namespace, Namespace: namespace, Observed: time.Duration(hours) * time.Hour, Clusters: 9, Used: used}
	}
	for _, row := range []struct {
		name    string
		usage   []Usage
		change  func(*Config)
		atLeast time.Duration
		hosts   string
		unused  string
		skipped string
		notes   int
	}{
		{name: "nothing", usage: []Usage{usage("shop", 1)}, hosts: "[./*]"},
		{name: "own", usage: []Usage{usage("shop", 1, "outbound|80||web.shop")}, hosts: "[./*]"},
		{name: "with names that lead there", usage: []Usage{usage("shop", 1, "outbound|80|v1|catalog.books")},
			hosts: "[./* books/books.example books/catalog.books legacy/books.legacy]", unused: "[books/search.books (VirtualService books/names)]"},
		{name: "with names of the own namespace", usage: []Usage{usage("books", 1, "outbound|80||catalog.books")}, hosts: "[./* legacy/books.legacy]"},
		{name: "routed to in another namespace alone", usage: []Usage{usage("shop", 1, "outbound|80||own.example", "outbound|80||ledger.bank")},
			hosts: "[./* bank/ledger.bank]"},
		{name: "of all proxies", usage: []Usage{usage("shop", 1, "outbound|80||search.books"), usage("shop", 2, "outbound|443||*.ext.org", "inbound|80||")},
			hosts: "[./* books/books.example books/search.books ext/*.ext.org]", unused: "[books/catalog.books (VirtualService books/names)]"},
		{name: "not visible", usage: []Usage{usage("shop", 1, "outbound|80||private.books")}, hosts: "[./*]"},
		{name: "visible to one", usage: []Usage{usage("shop", 1, "outbound|80||ledger.bank")}, hosts: "[./* bank/ledger.bank]"},
		{name: "too young", usage: []Usage{usage("shop", 30), usage("shop", 2)}, atLeast: 24 * time.Hour, skipped: "the counters of p.shop cover 2h0m0s, less than 24h0m0s"},
		{name: "old enough", usage: []Usage{usage("shop", 30), usage("shop", 24)}, atLeast: 24 * time.Hour, hosts: "[./*]"},
		{name: "its own Sidecar", usage: []Usage{usage("shop", 1)}, change: func(c *Config) { c.Sidecars = []Sidecar{{"shop", "x", false}} }, skipped: "Sidecar shop/x already states"},
		{name: "the root's Sidecar", usage: []Usage{usage("shop", 1)}, change: func(c *Config) { c.Sidecars = []Sidecar{{"istio-system", "x", false}} }, skipped: "would replace all"},
		{name: "another's Sidecar", usage: []Usage{usage("shop", 1)}, change: func(c *Config) { c.Sidecars = []Sidecar{{"bank", "x", false}} }, hosts: "[./*]"},
		{name: "a Sidecar of some", usage: []Usage{usage("shop", 1)}, change: func(c *Config) { c.Sidecars = []Sidecar{{"shop", "x", true}} }, hosts: "[./*]", notes: 1},
		{name: "unknown hosts", usage: []Usage{{Proxy: "a", Namespace: "shop", Unknown: true}}, hosts: "[./*]", notes: 1},
	} {
		c := mesh()
		if row.change != nil {
			row.change(&c)
		}
		all := Sidecars(row.usage, c, row.atLeast)
		if len(all) != 1 {
			t.Errorf("%s: %+v", row.name, all)
			continue
		}
		s := all[0]
		hosts, unused := "", ""
		if s.Hosts != nil {
			hosts = fmt.Sprint(s.Hosts)
		}
		if s.Unused != nil {
			unused = fmt.Sprint(s.Unused)
		}
		skipped := strings.Contains(s.Skipped, row.skipped) && (row.skipped == "") == (s.Skipped == "")
		if hosts != row.hosts || unused != row.unused || !skipped || len(s.Notes) != row.notes {
			t.Errorf("%s: hosts %s, want %s; unused %s, want %s; %q, %q", row.name, hosts, row.hosts, unused, row.unused, s.Skipped, s.Notes)
		}
	}
	if all := Sidecars([]Usage{usage("shop", 1), usage("bank", 1)}, mesh(), 0); len(all) != 2 || all[0].Namespace != "bank" {
		t.Errorf("%+v", all)
	}
}

// A text above the limit is refused with the limit, wherever it is cut.
func TestAnswersAreBounded(t *testing.T) {
	pair := `{"node": {"id": "a"}, "uptime_current_epoch": "1s"}{"x": "` + strings.Repeat("x", 5000) + `"}`
	none := func(json.RawMessage, Usage) error { return nil }
	for _, most := range []int64{10, 1000, int64(len(pair)), int64(len(pair)) + 1, int64(len(pair)) + 100} {
		if err := answers(strings.NewReader(pair+pair), most, none); err == nil || !strings.Contains(err.Error(), "more than") {
			t.Errorf("%d bytes: %v", most, err)
		}
	}
	if err := answers(strings.NewReader(pair), int64(len(pair))+1, none); err != nil {
		t.Error(err)
	}
}

// Answers reads pairs, counts outbound clusters, and finds those with a connection or a request.
func TestAnswers(t *testing.T) {
	const info = `{"node": {"id": "sidecar~10.0.0.1~a.shop~x"}, "uptime_current_epoch": "90.5s", "state": "LIVE"}`
	cluster := func(name, stats string) string {
		return fmt.Sprintf(`{"name": %q, "host_statuses": [{"stats": []}, {"stats": [%s]}]}`, name, stats)
	}
	clusters := `{"other": {"a": [1]}, "cluster_statuses": [` + strings.Join([]string{
		cluster("outbound|80||a", `{"name": "cx_active", "value": "1"}, {"name": "cx_total"}`), cluster("outbound|80||b", `{"name": "cx_total", "value": "3"}`),
		cluster("outbound|80||c", `{"value": "2", "name": "rq_total"}`), cluster("outbound|80||d", `{"value": "0", "name": "rq_total"}`),
		cluster("inbound|80||", `{"value": "2", "name": "rq_total"}`), cluster("PassthroughCluster", `{"value": "2", "name": "cx_total"}`), `{"name": "outbound|81||e"}`}, ",") + `]}`
	var got []Usage
	collect := func(_ json.RawMessage, u Usage) error { got = append(got, u); return nil }
	if err := Answers(strings.NewReader(info+clusters+"\n"+info+`{}`), collect); err != nil {
		t.Fatal(err)
	}
	want := []Usage{{Observed: 90500 * time.Millisecond, Clusters: 5, Used: []string{"outbound|80||b", "outbound|80||c"}, Unknown: true}, {Observed: 90500 * time.Millisecond}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for _, text := range []string{``, `[]`, `{}`, clusters, info, info + `[`, info + `{"cluster_statuses": 1}`, info + `{"cluster_statuses": [{`, info + clusters + `{}`,
		strings.Replace(info, "90.5s", "x", 1) + clusters} {
		if err := Answers(strings.NewReader(text), collect); err == nil {
			t.Errorf("read: %.60s", text)
		}
	}
	if err := Answers(strings.NewReader(info+clusters), func(json.RawMessage, Usage) error { return io.ErrClosedPipe }); err == nil {
		t.Error("an error is lost")
	}
}
