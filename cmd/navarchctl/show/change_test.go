package show

import (
	"strings"
	"testing"

	"navarch.io/navarch/push/meaning"
)

// named returns subjects that a line names all.
func named(all ...string) meaning.Subjects { return meaning.Subjects{Named: all} }

// aChange is a change with something in each section.
func aChange() Change {
	in := func(views, proxies int) meaning.Count {
		return meaning.Count{Views: views, Proxies: proxies, Example: "web-0.shop"}
	}
	fact := func(area meaning.Area, subject, aspect, text string, of meaning.Count) meaning.FactLine {
		f := meaning.Fact{Area: area, Subject: subject, Aspect: aspect, Text: text}
		return meaning.FactLine{Fact: f, Subjects: named(subject), Count: of}
	}
	return Change{
		Revision: 48213, Changed: 2, Created: 1, AllViews: 61, AllProxies: 10240,
		Refused: []Refusal{{"VirtualService shop/broken", "spec.http[0].route", "no destination"}},
		Summary: meaning.Summary{Views: 7, Proxies: 412,
			Risks: []meaning.RiskLine{
				{Risk: meaning.Risk{Code: meaning.RouteGone, Level: meaning.High, Subject: "api.shop:80",
					Text: "requests for /v2* have no route any more: 404", Objects: []string{"VirtualService shop/api"}}, Subjects: named("api.shop:80"), Count: in(3, 90)},
				{Risk: meaning.Risk{Code: meaning.SubsetEmpty, Level: meaning.Medium, Subject: "cluster api.shop:80|v2",
					Text: "the subset selects no endpoint", Objects: []string{"DestinationRule shop/api"}},
					Subjects: named("cluster api.shop:80|v2"), Count: in(7, 412)},
			},
			Facts: []meaning.FactLine{
				fact(meaning.Routes, "api.shop:80", "/v2*", "api.shop:80|v1 -> api.shop:80|v1 90%, api.shop:80|v2 10%; timeout 15s -> 3s", in(7, 412)),
				fact(meaning.Routes, "api.shop:80", "order", `rule "canary" now before "default"`, in(7, 412)),
				fact(meaning.Clusters, "cluster api.shop:80|v2", "", "new: ISTIO_MUTUAL, LEAST_REQUEST, 0 endpoints", in(1, 4)),
				{Fact: meaning.Fact{Area: meaning.Clusters, Text: "TLS SIMPLE -> MUTUAL"}, Count: in(7, 412),
					Subjects: meaning.Subjects{Named: []string{"cluster a", "cluster b"}, Others: 1300}},
			}, MoreFacts: 1200},
		Affected:    []Affected{{"shop", "sidecars of", 380}, {"istio-system", "gateways of", 32}},
		NewProblems: []string{"VirtualService shop/api: spec.http[1]: never used"},
		Bytes:       1_200_000, Missing: []string{"xds-2"},
	}
}

// The sections come in this order: refused objects, risks, proxies, facts, what is unchanged, problems, cost.
func TestChangeText(t *testing.T) {
	var b strings.Builder
	if err := aChange().Text(&b); err != nil {
		t.Fatal(err)
	}
	want := `Plan at revision 48213: 2 objects changed, 1 object new, 1 object refused. At least 412 of 10,240 proxies get a different configuration (4.0 %), in at least 7 of 61 views.
 REFUSED   VirtualService shop/broken                                                                                       spec.http[0].route: no destination
 HIGH      NP210 api.shop:80: requests for /v2* have no route any more: 404  (3 of 7 views, 90 proxies, such as web-0.shop)   VirtualService shop/api
 MED       NP114 cluster api.shop:80|v2: the subset selects no endpoint                                                       DestinationRule shop/api
 affected   sidecars of shop 380, gateways of istio-system 32
 api.shop:80                   /v2*    api.shop:80|v1 -> api.shop:80|v1 90%, api.shop:80|v2 10%; timeout 15s -> 3s
 api.shop:80                   order   rule "canary" now before "default"
 cluster api.shop:80|v2                new: ISTIO_MUTUAL, LEAST_REQUEST, 0 endpoints  (1 of 7 views, 4 proxies, such as web-0.shop)
 cluster a and 1,301 more TLS SIMPLE -> MUTUAL
 and 1,200 more differences
 no change in endpoints, inbound ports, policies, listeners, Secrets, extensions.  Problems: 1 new, 0 gone.
 + VirtualService shop/api: spec.http[1]: never used
 1.2 MB in all.
 replica xds-2 did not answer: its proxies are not counted.
`
	if got := fold(b.String()); got != fold(want) {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	b.Reset()
	if err := (Change{Revision: 7, AllProxies: 5}).Text(&b); err != nil {
		t.Fatal(err)
	}
	want = "Plan at revision 7: no object differs. Every proxy keeps its configuration.\n" +
		" no change in routes, clusters, endpoints, inbound ports, policies, listeners, Secrets, extensions.  Problems: 0 new, 0 gone.\n"
	if b.String() != want {
		t.Errorf("nothing changes: %q", b.String())
	}
}

// fold reduces each run of spaces to one, which tables pad.
func fold(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.Join(strings.Fields(line), " ")
	}
	return strings.Join(lines, "\n")
}

// hostile is a name that tries to forge a line, a link and a mention.
const hostile = "x\n HIGH NP101 forged\u202e`](http://evil.example) @everyone | y"

// Names of objects forge no lines, and in Markdown no links and no columns.
func TestHostileNames(t *testing.T) {
	c := aChange()
	c.Refused = []Refusal{{hostile, hostile, hostile}}
	c.Missing, c.Raw, c.NewProblems, c.GoneProblems = []string{hostile}, []string{hostile}, []string{hostile}, []string{hostile}
	c.Affected = []Affected{{hostile, hostile, 1}}
	for i := range c.Summary.Facts {
		f := &c.Summary.Facts[i]
		f.Subjects, f.Aspect, f.Text, f.Example = named(hostile), hostile, hostile, hostile
	}
	for i := range c.Summary.Risks {
		r := &c.Summary.Risks[i]
		r.Subjects, r.Text, r.Objects, r.Example = named(hostile), hostile, []string{hostile}, hostile
	}
	for name, print := range map[string]func(*strings.Builder) error{
		"text":     func(b *strings.Builder) error { return c.Text(b) },
		"markdown": func(b *strings.Builder) error { return c.Markdown(b) },
	} {
		var b strings.Builder
		if err := print(&b); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if strings.HasPrefix(line, " HIGH NP101 forged") || strings.ContainsRune(line, '\u202e') {
				t.Errorf("%s: forged line %q", name, line)
			}
			if name != "markdown" {
				continue
			}
			var outside strings.Builder // text beside code spans
			for i, part := range strings.Split(line, "`") {
				if i%2 == 0 {
					outside.WriteString(part)
				}
			}
			if strings.Contains(outside.String(), "evil") || strings.Contains(outside.String(), "@") {
				t.Errorf("markdown outside of code: %q", line)
			}
			if strings.HasPrefix(line, "| high") && strings.Count(strings.ReplaceAll(line, `\|`, ""), "|") != 6 {
				t.Errorf("markdown: another number of columns: %q", line)
			}
		}
	}
}
