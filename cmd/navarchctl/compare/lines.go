package compare

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// line is a line of the fidelity lists: differences that are argued for.
type line struct {
	class  string
	places int            // in the measured cases
	where  *regexp.Regexp // of "CASE TYPE RESOURCE.path"
	who    *regexp.Regexp // of the identities that differ; nil: none do
	why    string
	// In any mesh; mesh is nil if the line holds in the measured cases alone.
	mesh      *regexp.Regexp // of "TYPE RESOURCE.path"
	condition string         // a key of conditions
	anchor    string         // of the table in deploy/docs/fidelity.md
}

// parseLines parses a list. Columns are separated by tabs: class, places, expression, why, and for lines that hold in
// any mesh the condition with an expression (empty: that of the third column), and the anchor of the page.
func parseLines(list string) (all []line, err error) {
	for text := range strings.Lines(list) {
		text = strings.TrimSuffix(text, "\n")
		if strings.TrimSpace(text) == "" || strings.HasPrefix(text, "#") {
			continue
		}
		l, err := parseLine(strings.Split(text, "\t"))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", text, err)
		}
		all = append(all, l)
	}
	return all, nil
}

func parseLine(columns []string) (l line, err error) {
	if len(columns) != 4 && len(columns) != 6 {
		return l, fmt.Errorf("%d columns, want 4 or 6", len(columns))
	}
	l.class, l.why = columns[0], columns[3]
	if l.places, err = strconv.Atoi(columns[1]); err != nil {
		return l, err
	}
	where, who, named := strings.Cut(columns[2], " => ")
	if l.where, err = regexp.Compile(where); err != nil {
		return l, err
	}
	if named {
		if l.who, err = regexp.Compile("^(?:" + who + ")$"); err != nil {
			return l, err
		}
	}
	if len(columns) == 4 {
		return l, nil
	}
	condition, mesh, _ := strings.Cut(columns[4], " ")
	if conditions[condition] == nil {
		return l, fmt.Errorf("there is no condition %q", condition)
	}
	l.condition, l.anchor = condition, columns[5]
	l.mesh, err = regexp.Compile("^(?:" + cmp.Or(mesh, where) + ")")
	return l, err
}

// identityFields are the fields whose texts identify a peer.
const identityFields = `match_subject_alt_names|match_typed_subject_alt_names|principals|principal_name|and_ids|or_ids|not_id`

// identifies finds the fields whose texts identify a peer: names in its certificate, principals of RBAC.
var (
	identifies = regexp.MustCompile(`^(` + identityFields + `)$`)
	identified = regexp.MustCompile(`(` + identityFields + `)(?:[.\[]|$)`)
)

// identitiesOf returns the identities that only one value of a difference has, as "-exact spiffe://a +prefix
// spiffe://b/". It is empty if none does.
func identitiesOf(path string, theirs, ours any) string {
	within := identified.MatchString(path)
	x, y := collectIdentities(theirs, within, ""), collectIdentities(ours, within, "")
	slices.Sort(x)
	slices.Sort(y)
	var all []string
	for _, one := range slices.Compact(x) {
		if !slices.Contains(y, one) {
			all = append(all, "-"+one)
		}
	}
	for _, one := range slices.Compact(y) {
		if !slices.Contains(x, one) {
			all = append(all, "+"+one)
		}
	}
	return strings.Join(all, " ")
}

// collectIdentities returns the matcher and the text of each identity in a value.
func collectIdentities(v any, within bool, matcher string) (all []string) {
	if text, is := v.(string); is && within && (strings.HasPrefix(text, "{") || strings.HasPrefix(text, "[")) {
		var element any // of a set, as diff has it
		if json.Unmarshal([]byte(text), &element) == nil {
			v = element
		}
	}
	switch v := v.(type) {
	case map[string]any:
		for _, k := range sortedKeys(v) {
			all = append(all, collectIdentities(v[k], within || identifies.MatchString(k), k)...)
		}
	case []any:
		for _, e := range v {
			all = append(all, collectIdentities(e, within, matcher)...)
		}
	case string:
		if within || strings.Contains(v, "spiffe://") {
			all = append(all, matcher+" "+v)
		}
	}
	return all
}
