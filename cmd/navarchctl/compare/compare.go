// Package compare compares the resources that a proxy got from istiod with those that Navarch would serve the proxy. A
// row in a table of deploy/docs/fidelity.md may explain ("argue for") a difference. Differences that no row explains
// are findings.
//
// Data: a dump's resources are added one after the other (Comparison.Add). Each is parsed, brought into a normal form
// (function clean), and compared field by field with Navarch's resource of the same name (function diff). Harmless
// differences are ignored (function counts). The fidelity lists of deploy/fidelity have the rows in machine-readable
// form. If a line of the lists applies to a difference and its condition holds, the difference is explained (function
// argued). Any other difference is a Finding. In names of variables, "theirs" is istiod's configuration and "ours" is
// Navarch's.
//
// Owns: nothing.
// Reads: untrusted dumps; the lists of deploy/fidelity.
// Never: uses a socket or a file; keeps more than Most findings of a proxy.
package compare

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/xds"
)

// Most is the highest number of findings and of notes that are kept for one proxy. Further findings are only counted,
// and further notes are dropped. mostText is the highest number of bytes of a note, and of a value in a finding. Longer
// texts are cut.
const (
	Most     = 200
	mostText = 1024
)

// Ours provides the resources that Navarch would serve the proxy.
type Ours interface {
	// Get returns a resource, which the caller does not change. It returns nil without an error if Navarch has no such
	// resource.
	Get(t xds.Type, name string) (proto.Message, error)
	// Names returns the sorted names of a type's resources. It may return nil if the type has no resource.
	Names(t xds.Type) []string
	// Objects returns the configuration objects that caused a value of a resource. The argument called value is the
	// path of the field, followed by the JSON of Navarch's value. The JSON is missing if Navarch has no value.
	Objects(t xds.Type, name, value string) []string
}

// Count has the numbers of resources by outcome.
type Count struct {
	Equal     int `json:"equal"`
	Argued    int `json:"argued"`
	Different int `json:"different"`
}

// Finding is a difference that no row of the fidelity page explains, or a resource that cannot be parsed.
type Finding struct {
	Type     string `json:"type"`     // plural of the type's noun, such as clusters
	Resource string `json:"resource"` // name of the resource
	// Path has the form .field.list[key].field. It ends with #count or #order if the lists differ in length or order.
	// For some properties of a gateway's resource it is a space and a word, such as " shared". An empty Path means the
	// whole resource.
	Path   string `json:"path"`
	Istiod string `json:"istiod,omitempty"` // JSON, cut after 1024 bytes ("... (N bytes)"); empty: no value
	// Navarch is Navarch's value, in the form of the field Istiod.
	Navarch string   `json:"navarch,omitempty"`
	Objects []string `json:"objects,omitempty"` // configuration objects that caused Navarch's value (Ours.Objects)
}

// Argument is a row of the fidelity page that explains differences of one proxy. Differences for which Row, Class,
// Type, Field and Why are equal share one Argument.
type Argument struct {
	Row   string `json:"row"`   // fidelity.md#anchor
	Class string `json:"class"` // class of the row: harmless, asked, kept, better
	Type  string `json:"type"`  // plural of the type's noun, such as clusters
	Field string `json:"field"` // the path of the difference after its last dot
	Why   string `json:"why"`   // explanation
	// Places is the number of differences that this Argument explains.
	Places int `json:"places"`
}

// Outcomes of a resource or a proxy. Equal: there are no differences, or only harmless ones. Argued: rows explain all
// differences that are not harmless. Different: there is at least one finding or unreadable part. Types for which the
// dump has no section do not affect the outcome.
const (
	Equal     = "equal"
	Argued    = "argued"
	Different = "different"
)

// Result is the outcome of the comparison of one proxy.
type Result struct {
	Outcome string `json:"outcome"` // Equal, Argued or Different
	// Resources has an entry for each of Types. The key is the plural of the type's noun, such as clusters.
	Resources map[string]*Count `json:"resources"`
	// Arguments is sorted by Places, the highest first. Arguments and Findings are not nil.
	Arguments []Argument `json:"arguments"`
	Findings  []Finding  `json:"findings"`
	More      int        `json:"more,omitempty"`  // number of findings that were not kept
	Notes     []string   `json:"notes,omitempty"` // remarks, at most Most
}

// Comparison accumulates the comparison of one proxy. It is not safe for concurrent use.
type Comparison struct {
	ours   Ours
	router bool
	most   int
	has    map[xds.Type]bool
	got    map[xds.Type]map[string]bool
	known  seen
	eds    map[string]bool // names of the assignments to which istiod's clusters refer
	result Result
	at     map[Argument]int
}

// New begins the comparison of one proxy. The argument router states that the proxy is a gateway. The argument limit is
// the number of findings to keep, and is cut to Most. If limit is 0, findings are only counted.
func New(ours Ours, router bool, limit int) *Comparison {
	c := &Comparison{ours: ours, router: router, most: min(limit, Most), has: map[xds.Type]bool{}, got: map[xds.Type]map[string]bool{},
		eds: map[string]bool{}, at: map[Argument]int{},
		known:  seen{theirClusters: map[string]bool{}, ourClusters: map[string]bool{}, theirEmpty: map[string]bool{}},
		result: Result{Resources: map[string]*Count{}, Arguments: []Argument{}, Findings: []Finding{}}}
	for _, t := range Types {
		c.got[t], c.result.Resources[noun(t)] = map[string]bool{}, &Count{}
	}
	for _, name := range ours.Names(xds.Cluster) {
		c.known.ourClusters[name] = true
	}
	return c
}

func noun(t xds.Type) string { return t.Noun() + "s" }

// Section records that the dump has a section for a type of resources, even an empty one. Only for these types does
// Result report the resources that istiod did not send.
func (c *Comparison) Section(t xds.Type) { c.has[t] = true }

// Note adds a remark to the result, formatted as by fmt.Sprintf, and cut after 1024 bytes. Notes beyond Most are
// dropped.
func (c *Comparison) Note(format string, args ...any) {
	if len(c.result.Notes) < Most {
		c.result.Notes = append(c.result.Notes, cut(fmt.Sprintf(format, args...)))
	}
}

// Add compares a resource that istiod sent. Clusters have to be added before endpoints, because endpoint assignments to
// which no cluster refers are ignored. Add also ignores types that are not in Types, and repeated names. A resource
// that cannot be parsed is a finding with a note. A resource with an unknown part counts as Different, with a note. Add
// does not keep raw. A fault of the dump is no error. An error means that Ours failed, or that its resource cannot be
// encoded.
func (c *Comparison) Add(t xds.Type, name string, raw json.RawMessage) error {
	if !slices.Contains(Types, t) || c.got[t][name] {
		return nil
	}
	theirs, unread, err := parse(t, raw)
	if err != nil {
		c.Note("%s %s cannot be read: %v", noun(t), name, err)
		c.got[t][name] = true
		c.count(t, Different)
		c.find(t, name, "", string(raw), nil, "")
		return nil
	}
	c.learn(t, name, theirs)
	if t == xds.Endpoint && !c.eds[name] {
		return nil // the cluster resolves DNS names, so Envoy made this assignment itself
	}
	c.got[t][name] = true
	ours, err := c.of(t, name)
	if err != nil {
		return err
	}
	outcome := c.resource(t, name, theirs, ours)
	if unread != nil && outcome != Different {
		c.Note("%s %s: a part was not compared: %v", noun(t), name, unread)
		outcome = Different
	}
	c.count(t, outcome)
	return nil
}

// learn records the facts about istiod's resources that the conditions in argue.go read.
func (c *Comparison) learn(t xds.Type, name string, theirs parsed) {
	if t == xds.Endpoint && len(endpointsOf(theirs)) == 0 {
		c.known.theirEmpty[name] = true
	}
	if t != xds.Cluster {
		return
	}
	c.known.theirClusters[name] = true
	if theirs["type"] == "EDS" {
		eds, _ := theirs["eds_cluster_config"].(map[string]any)
		c.eds[cmp.Or(text(eds["service_name"]), name)] = true
	}
}

// of returns Navarch's resource, or nil if Navarch has no such resource.
func (c *Comparison) of(t xds.Type, name string) (parsed, error) {
	m, err := c.ours.Get(t, name)
	if m == nil || err != nil {
		return nil, err
	}
	return fieldsOf(m)
}

// Result adds the resources that only Navarch has, and returns the result. Call it once, after all of istiod's
// resources were added. For a type without a section it only adds a note. An error means that Ours failed, or that its
// resource cannot be encoded.
func (c *Comparison) Result() (*Result, error) {
	for _, t := range Types {
		if !c.has[t] {
			c.Note("the dump has no section of %s, so that they were not compared", noun(t))
			continue
		}
		for _, name := range c.ours.Names(t) {
			if c.got[t][name] {
				continue
			}
			ours, err := c.of(t, name)
			if err != nil {
				return nil, err
			}
			c.count(t, c.resource(t, name, nil, ours))
		}
	}
	c.finish()
	return &c.result, nil
}

// finish sets the outcome and the sorted arguments.
func (c *Comparison) finish() {
	r := &c.result
	for a, places := range c.at {
		a.Places = places
		r.Arguments = append(r.Arguments, a)
	}
	slices.SortFunc(r.Arguments, func(a, b Argument) int {
		return cmp.Or(b.Places-a.Places, cmp.Compare(a.Row, b.Row), cmp.Compare(a.Type+a.Field, b.Type+b.Field), cmp.Compare(a.Why, b.Why))
	})
	r.Outcome = Equal
	for _, n := range r.Resources {
		switch {
		case n.Different > 0:
			r.Outcome = Different
		case n.Argued > 0 && r.Outcome == Equal:
			r.Outcome = Argued
		}
	}
}

func (c *Comparison) count(t xds.Type, outcome string) {
	n := c.result.Resources[noun(t)]
	switch outcome {
	case Equal:
		n.Equal++
	case Argued:
		n.Argued++
	default:
		n.Different++
	}
}

// resource compares one resource and returns its outcome. One side may be nil.
func (c *Comparison) resource(t xds.Type, name string, theirs, ours parsed) string {
	var found []difference
	switch {
	case theirs == nil:
		found = []difference{{" EXTRA", nil, map[string]any(ours), nil}}
	case ours == nil:
		found = []difference{{" MISSING", map[string]any(theirs), nil, nil}}
	default:
		found = c.fields(t, theirs, ours)
	}
	outcome := Equal
	for _, d := range found {
		place := noun(t) + " " + name + d.path
		if theirs != nil && ours != nil && !counts(place, d, c.router) {
			continue
		}
		if l := argued(place, d, &c.known, c.router); l != nil {
			c.argue(t, d, l)
			if outcome == Equal {
				outcome = Argued
			}
			continue
		}
		outcome = Different
		path, value := d.path, d.ours
		if theirs == nil || ours == nil {
			path = ""
		}
		c.find(t, name, path, shown(d.theirs), value, shown(d.ours))
	}
	return outcome
}

// fields returns the differences of two resources. It may change both resources.
func (c *Comparison) fields(t xds.Type, theirs, ours parsed) []difference {
	if t == xds.Endpoint {
		asDumped(theirs, ours)
	}
	var a, b any = map[string]any(theirs), map[string]any(ours)
	var marks []difference
	if c.router {
		x, was := alike(noun(t), theirs)
		y, is := alike(noun(t), ours)
		a, b = x, y
		for _, m := range slices.Concat(was, is) {
			if slices.Contains(was, m) != slices.Contains(is, m) {
				marks = append(marks, difference{path: m})
			}
		}
	}
	a, b = clean(a, ""), clean(b, "")
	x, _ := a.(map[string]any)
	y, _ := b.(map[string]any)
	c.known.resource = pair{x, y}
	return append(marks, diff(a, b)...)
}

func (c *Comparison) argue(t xds.Type, d difference, l *line) {
	c.at[Argument{Row: "fidelity.md#" + l.anchor, Class: l.class, Type: noun(t), Field: lastField(d.path), Why: l.why}]++
}

func (c *Comparison) find(t xds.Type, name, path, istiod string, value any, navarch string) {
	if len(c.result.Findings) >= c.most {
		c.result.More++
		return
	}
	var objects []string
	if value != nil || path != "" {
		objects = c.ours.Objects(t, name, path+navarch)
	}
	c.result.Findings = append(c.result.Findings, Finding{noun(t), name, path, cut(istiod), cut(navarch), objects})
}

// shown returns a value as JSON, or an empty text if the value is absent.
func shown(v any) string {
	if v == nil {
		return ""
	}
	return canon(v)
}

func cut(text string) string {
	if len(text) <= mostText {
		return text
	}
	return strings.ToValidUTF8(text[:mostText], "") + fmt.Sprintf("... (%d bytes)", len(text))
}
