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

// line is one line of the fidelity lists (files of deploy/fidelity). It explains ("argues for") one kind of difference
// between istiod's and Navarch's configuration.
type line struct {
	// class is harmless, asked, kept, better or render. The head of differences.txt explains these classes.
	class  string
	places int            // number of differences that the line explains in the cases that deploy/fidelity measures
	where  *regexp.Regexp // matches "CASE TYPE RESOURCE.path"
	who    *regexp.Regexp // matches the result of identitiesOf; nil if the identities have to be equal
	why    string
	// The fields below are set if the line holds in any mesh. If the line holds only in the cases that deploy/fidelity
	// measures, mesh is nil.
	mesh      *regexp.Regexp // matches "TYPE RESOURCE.path"
	condition string         // a key of conditions
	anchor    string         // heading of the table in deploy/docs/fidelity.md
}

// parseLines parses a list of lines with four or six columns, separated by tabs: class, places, expression, why. A line
// that holds in any mesh has two more columns, condition and anchor. A space and an expression for the field mesh may
// follow the condition. Without it, the expression of the third column is used for mesh, too. Empty lines and lines
// that begin with # are skipped. The error contains the first invalid line.
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

// identityFields matches the fields that identify a peer by names in certificates or by RBAC principals.
const identityFields = `match_subject_alt_names|match_typed_subject_alt_names|principals|principal_name|and_ids|or_ids|not_id`

// identifies matches the name of an identity field. identified matches a path that contains an identity field.
var (
	identifies = regexp.MustCompile(`^(` + identityFields + `)$`)
	identified = regexp.MustCompile(`(` + identityFields + `)(?:[.\[]|$)`)
)

// identitiesOf returns the identities that only one value of a difference has: "-exact spiffe://a +prefix spiffe://b/",
// where - means istiod's value and + Navarch's. The result is empty if both values have the same identities.
func identitiesOf(path string, theirs, ours any) string {
	within := identified.MatchString(path)
	x, y := collectIdentities(theirs, within, ""), collectIdentities(ours, within, "")
	slices.Sort(x)
	slices.Sort(y)
	x, y = slices.Compact(x), slices.Compact(y)
	var all []string
	only := func(sign string, of, others []string) {
		for _, one := range of {
			if _, both := slices.BinarySearch(others, one); !both {
				all = append(all, sign+one)
			}
		}
	}
	only("-", x, y)
	only("+", y, x)
	return strings.Join(all, " ")
}

// collectIdentities returns a text "MATCHER IDENTITY" for each identity in a value. The parameter within states that
// the value is inside a field that identityFields matches. Outside of such fields, only texts with a SPIFFE ID count as
// identities.
func collectIdentities(v any, within bool, matcher string) (all []string) {
	if text, is := v.(string); is && within && (strings.HasPrefix(text, "{") || strings.HasPrefix(text, "[")) {
		var element any // an element of a set, which diff returns as JSON text
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
