package compare

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/cmd/navarchctl/dump"
	"navarch.io/navarch/deploy/docs"
	"navarch.io/navarch/deploy/fidelity"
	"navarch.io/navarch/push/xds"
)

// resource is a resource of a dump.
type resource struct {
	t    xds.Type
	name string
	raw  json.RawMessage
}

// served has the resources of a dump as if they were ours.
type served []resource

func (s served) Get(t xds.Type, name string) (proto.Message, error) {
	for _, r := range s {
		if r.t == t && r.name == name {
			m := message(t)
			return m, protojson.Unmarshal(mustStand(r.raw), m)
		}
	}
	return nil, nil
}

// mustStand returns the JSON of a resource without its type, with stand-ins for unknown messages.
func mustStand(raw json.RawMessage) []byte {
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		panic(err)
	}
	delete(v.(map[string]any), "@type")
	stood, err := json.Marshal(standIn(v))
	if err != nil {
		panic(err)
	}
	return stood
}

func (s served) Names(t xds.Type) (names []string) {
	for _, r := range s {
		if r.t == t {
			names = append(names, r.name)
		}
	}
	return names
}

func (s served) Objects(_ xds.Type, name, _ string) []string { return []string{"made " + name} }

// example returns the resources of each dump of the example.
func example(t *testing.T) (dumps []served) {
	t.Helper()
	in, err := os.Open("../../../deploy/fidelity/example/dump.json")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	stream := dump.NewStream(in)
	for range 2 {
		var all served
		err := stream.Next(dump.Visitor{Node: func(json.RawMessage) error { return nil }, Section: func(xds.Type) error { return nil },
			Resource: func(r dump.Resource) error {
				all = append(all, resource{r.Type, r.Name, r.Raw})
				return nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		dumps = append(dumps, all)
	}
	return dumps
}

// compared returns the result for istiod's resources.
func compared(t *testing.T, theirs, ours served, router bool) *Result {
	t.Helper()
	c := New(ours, router, Most)
	for _, kind := range Types {
		c.Section(kind)
	}
	for _, r := range theirs {
		if err := c.Add(r.t, r.name, r.raw); err != nil {
			t.Fatal(err)
		}
	}
	result, err := c.Result()
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// The same resources are equal, in either spelling of names of fields.
func TestEqual(t *testing.T) {
	for i, all := range example(t) {
		spelled := slices.Clone(all)
		for i, r := range spelled {
			spelled[i].raw = camel(t, r)
		}
		for _, theirs := range []served{all, spelled} {
			if r := compared(t, theirs, all, i == 0); r.Outcome != Equal || r.Resources["clusters"].Equal < 20 {
				t.Errorf("%s: %+v", r.Outcome, r.Findings)
			}
		}
	}
}

// camel returns a resource with proto JSON's names of fields, as istioctl prints it.
func camel(t *testing.T, r resource) json.RawMessage {
	m := message(r.t)
	if err := protojson.Unmarshal(mustStand(r.raw), m); err != nil {
		t.Fatal(err)
	}
	raw, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	if raw, err = json.Marshal(withoutStandIns(v)); err != nil {
		t.Fatal(err)
	}
	return raw
}

// edit is a resource with one field changed, or removed.
type edit struct {
	path string
	raw  json.RawMessage
}

// edits returns a resource once for each of its fields and elements that can be changed or removed.
func edits(raw json.RawMessage) (all []edit) {
	var root any
	if err := json.Unmarshal(raw, &root); err != nil {
		panic(err)
	}
	save := func(path string) {
		changed, err := json.Marshal(root)
		if err != nil {
			panic(err)
		}
		all = append(all, edit{path, changed})
	}
	var walk func(path string, v any, set func(any))
	walk = func(path string, v any, set func(any)) {
		try := func(path string, other any) {
			set(other)
			save(path)
			set(v)
		}
		switch v := v.(type) {
		case map[string]any:
			for _, k := range sortedKeys(v) {
				if k == "@type" || k == "type_url" {
					continue
				}
				walk(path+"."+k, v[k], func(e any) { v[k] = e })
				gone := v[k]
				delete(v, k)
				save(path + "." + k + " removed")
				v[k] = gone
			}
		case []any:
			for i, e := range v {
				walk(fmt.Sprintf("%s[%d]", path, i), e, func(e any) { v[i] = e })
				try(fmt.Sprintf("%s[%d] removed", path, i), slices.Delete(slices.Clone(v), i, i+1))
			}
		case string:
			switch {
			case duration.MatchString(v):
				try(path, "77s")
			default:
				try(path, v+"x")
			}
		case float64:
			try(path, v+1)
		case bool:
			try(path, !v)
		}
	}
	walk("", root, func(any) {})
	return all
}

var duration = regexp.MustCompile(`^[0-9.]+s$`)

// hidden are the edits of istiod's resources that are not found: what a comparison does not count, by its page, and
// what a line argues for by both values.
var hidden = regexp.MustCompile(`stat_prefix|alt_stat_name|decorator|traffic_direction|stats_tags|\.metadata\.filter_metadata\.istio|` +
	`\.filter_chains\[\d+\]\.name|tls_inspector|request_id_extension|track_remaining|cleanup_interval|typed_dns_resolver_config|` +
	`max_connections_to_accept_per_socket_event|shadow_rules_stat_prefix|health_status|initial_read_buffer_size|` +
	`forward_client_cert_details|set_current_client_cert_details|load_balancing_weight removed|` +
	`(filter_chain_match|metadata|filter_metadata|locality|policy) removed`)

// Whatever field of a resource differs, or is missing on one side, it is found different, but for what the page says
// does not count.
func TestEveryEditIsFound(t *testing.T) {
	for router, all := range example(t) {
		edited, argued, missed := 0, map[string]int{}, map[string]int{}
		for at, r := range all {
			if at%3 != 0 && r.t <= xds.Endpoint { // clusters and assignments are alike
				continue
			}
			for i, e := range edits(r.raw) {
				if i%11 != at%11 {
					continue
				}
				edited++
				theirs, ours := r, resource{r.t, r.name, e.raw}
				if edited%2 == 0 {
					theirs, ours = ours, theirs
				}
				result := oneResource(t, ours, theirs, router == 0)
				switch {
				case result.Outcome == Argued:
					argued[r.t.Noun()+" "+generalised(e.path)]++
				case result.Outcome == Equal && !hidden.MatchString(e.path) && !own(r.raw, e):
					missed[r.t.Noun()+" "+generalised(e.path)]++
				}
			}
		}
		if edited < 120 {
			t.Errorf("%d edits", edited)
		}
		for path, n := range missed {
			t.Errorf("not found, %d times: %s", n, path)
		}
		for path := range argued {
			if !arguable.MatchString(path) {
				t.Errorf("argued for: %s", path)
			}
		}
	}
}

// arguable are the edits that a line argues for: at gateways the timeout of listener filters and tls_inspector, tags
// of spans that are not made, addresses of a host.
var arguable = regexp.MustCompile(`^listener \.continue_on_listener_filters_timeout|^listener \.listener_filters|\.tracing\.custom_tags removed$|` +
	`^route \.virtual_hosts\[\]\.domains\[\] removed$`)

// own reports whether an edit is within one of Istio's own filters.
func own(raw json.RawMessage, e edit) bool {
	a, _, err := parse(xds.Listener, raw)
	b, _, wrong := parse(xds.Listener, e.raw)
	return err == nil && wrong == nil && canon(clean(map[string]any(a), "")) == canon(clean(map[string]any(b), "")) &&
		ownFilters.MatchString(string(raw)) && strings.Contains(e.path, "filters")
}

func generalised(path string) string {
	return regexp.MustCompile(`\[\d+\]`).ReplaceAllString(path, "[]")
}

// oneResource compares one resource.
func oneResource(t *testing.T, ours, theirs resource, router bool) *Result {
	t.Helper()
	c := New(served{ours}, router, Most)
	c.Section(theirs.t)
	c.eds[theirs.name] = true
	if err := c.Add(theirs.t, theirs.name, theirs.raw); err != nil {
		return &Result{Outcome: Different} // ours does not parse
	}
	result, err := c.Result()
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// A part of a resource that this program does not know is no equal part.
func TestUnknownParts(t *testing.T) {
	ours := served{{xds.Cluster, "a", json.RawMessage(`{"name": "a", "connect_timeout": "1s"}`)}}
	for _, raw := range []string{`{"name": "a", "connect_timeout": "1s", "unheard_of": 1}`, `{"name": "a", "connect_timeout": {}}`, `[]`,
		`{"name": "a", "connect_timeout": "1s", "transport_socket": {"name": "x", "typed_config": {"@type": "type.googleapis.com/acme.Thing", "a": [1]}}}`} {
		r := compared(t, served{{xds.Cluster, "a", json.RawMessage(raw)}}, ours, false)
		if r.Outcome != Different || len(r.Notes)+len(r.Findings) == 0 {
			t.Errorf("%s: %+v", raw, r)
		}
	}
	// A message of an unknown type is compared by its fields.
	thing := `{"name": "a", "transport_socket": {"name": "x", "typed_config": {"@type": "type.googleapis.com/acme.Thing", "a": [1]}}}`
	a, _, err := parse(xds.Cluster, json.RawMessage(thing))
	b, _, wrong := parse(xds.Cluster, json.RawMessage(strings.Replace(thing, "[1]", "[2]", 1)))
	if err != nil || wrong != nil || len(diff(map[string]any(a), map[string]any(b))) != 1 {
		t.Errorf("%v %v: %v", err, wrong, diff(map[string]any(a), map[string]any(b)))
	}
}

// Findings of one proxy are bounded in number and size; those that are not kept are counted.
func TestFindingsAreBounded(t *testing.T) {
	var theirs served
	for i := range Most + 5 {
		name := fmt.Sprint("c", i)
		theirs = append(theirs, resource{xds.Cluster, name, json.RawMessage(fmt.Sprintf(`{"name": %q, "type": "EDS", "alt_stat_name": %q}`, name, strings.Repeat("x", 2*mostText)))})
	}
	r := compared(t, theirs, nil, false)
	if len(r.Findings) != Most || r.More != 5 || r.Resources["clusters"].Different != Most+5 || len(r.Findings[0].Istiod) > mostText+32 {
		t.Errorf("%d findings, %d more, %+v", len(r.Findings), r.More, r.Resources["clusters"])
	}
}

// A section that the dump does not have is not compared, and a note says so.
func TestMissingSection(t *testing.T) {
	c := New(served{{xds.Endpoint, "a", nil}}, false, Most)
	c.Section(xds.Cluster)
	r, err := c.Result()
	if err != nil || r.Outcome != Equal || len(r.Notes) != 3 || !strings.Contains(r.Notes[0], "no section of endpoints") {
		t.Errorf("%v %+v", err, r)
	}
}

// The lists parse, and each line that holds in any mesh names a heading of the page.
func TestLists(t *testing.T) {
	page, err := docs.Pages.ReadFile("fidelity.md")
	if err != nil {
		t.Fatal(err)
	}
	var anchors []string
	for _, m := range regexp.MustCompile(`(?m)^##+ (.*)$`).FindAllStringSubmatch(string(page), -1) {
		anchors = append(anchors, strings.ReplaceAll(strings.ToLower(m[1]), " ", "-"))
	}
	used := map[string]bool{}
	for _, list := range []string{fidelity.Sidecars, fidelity.Gateways} {
		all, err := parseLines(list)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range all {
			used[l.condition] = true
			if l.mesh != nil && !slices.Contains(anchors, l.anchor) {
				t.Errorf("%s: the page has no heading %q", l.where, l.anchor)
			}
			if l.mesh != nil && l.class == "render" {
				t.Errorf("%s: what render lacks holds in no mesh", l.where)
			}
		}
	}
	for name := range conditions {
		if !used[name] {
			t.Errorf("no line has the condition %s", name)
		}
	}
}
