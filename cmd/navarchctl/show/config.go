package show

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/cmd/navarchctl/dump"
	"navarch.io/navarch/push/xds"
)

// Filter selects the resources to print. A resource must match all fields that apply to its type. Zero fields match all
// resources. Each field applies to the types that its comment names, and is ignored for other types. Upper and lower
// case are equal for Direction, Address, Type, Cluster and Status.
type Filter struct {
	FQDN      string // substring of a cluster's host
	Subset    string // substring of a cluster's subset
	Direction string // of a cluster: inbound or outbound
	Port      uint32 // of a cluster, a listener or an endpoint
	Name      string // whole name of a route configuration
	Address   string // of a listener or an endpoint, without port
	Type      string // of a listener: HTTP, TCP, HTTP+TCP or UNKNOWN
	Cluster   string // whole name of an endpoint's cluster
	Status    string // health of an endpoint: healthy, unhealthy, draining ...
}

// layout describes the table of one resource type.
type layout struct {
	heading []string
	rows    func(f Filter, m proto.Message) [][]string        // the rows of one resource
	takes   func(f Filter, name string, m proto.Message) bool // whether the filter selects a resource; m may be nil
}

func all(Filter, string, proto.Message) bool { return true }

var layouts = [xds.NumTypes]layout{
	xds.Cluster:   {[]string{"SERVICE FQDN", "PORT", "SUBSET", "DIRECTION", "TYPE", "DESTINATION RULE"}, clusterRows, takesCluster},
	xds.Endpoint:  {[]string{"ENDPOINT", "HEALTH", "OUTLIER CHECK", "WEIGHT", "LOCALITY", "CLUSTER"}, endpointRows, takesAssignment},
	xds.Listener:  {[]string{"ADDRESS", "PORT", "MATCH", "DESTINATION"}, listenerRows, takesListener},
	xds.Route:     {[]string{"NAME", "VIRTUAL HOST", "DOMAINS", "MATCH", "VIRTUAL SERVICE"}, routeRows, takesRoute},
	xds.Secret:    {[]string{"RESOURCE", "TYPE", "IDENTITY", "SERIAL", "NOT AFTER", "ISSUER", "EPOCH"}, secretRows, all},
	xds.Extension: {[]string{"NAME", "TYPE", "CONTENT"}, extensionRows, all},
}

// Select returns the resources of type t in a dump that the filter selects. If there is no such resource, the result is
// nil. The resources are sorted by the parts of their names in Istio's form: host, port, subset and direction. A
// resource whose name has another form is sorted by its whole name. An assignment (the endpoints of a cluster) is
// selected if one of its endpoints is. The dump stays unchanged, and the result is a new slice. The type t must not be
// xds.Unknown.
func Select(d *dump.Dump, t xds.Type, f Filter) []dump.Resource {
	var out []dump.Resource
	for _, r := range d.Resources[t] {
		if layouts[t].takes(f, r.Name, r.Message) {
			out = append(out, r)
		}
	}
	slices.SortStableFunc(out, func(a, b dump.Resource) int { return strings.Compare(order(a), order(b)) })
	return out
}

// order returns the sort key of a resource. For a name in Istio's form, the key has the parts of the name, the host
// first. For any other name, the key is the name itself.
func order(r dump.Resource) string {
	if direction, port, subset, host, ok := xds.ParseCluster(r.Name); ok {
		return fmt.Sprintf("%s\x00%05d\x00%s\x00%s", host, port, subset, direction)
	}
	return r.Name
}

// Config prints a table of the resources that Select returns. Below the table, it prints a line for each resource that
// was refused, is withheld, or cannot be decoded. The table has a column STATUS if there is such a line, or if a
// resource is warming or draining. If wide is set, the table has columns with the name and the version of each
// resource.
//
// If the dump has the endpoints of Envoy's /clusters (Hosts), Config prints these endpoints in place of the endpoints
// of decoded assignments. Errors are those of w.
func Config(w io.Writer, d *dump.Dump, t xds.Type, f Filter, wide bool) error {
	selected := Select(d, t, f)
	heading := layouts[t].heading
	marked := slices.ContainsFunc(selected, func(r dump.Resource) bool { return mark(r) != "" })
	if marked {
		heading = append(slices.Clone(heading), "STATUS")
	}
	if wide {
		heading = append(slices.Clone(heading), "RESOURCE NAME", "VERSION")
	}
	rows := [][]string{heading}
	for _, r := range selected {
		var shown [][]string
		switch {
		case r.Message == nil:
			shown = [][]string{unknown(t, r.Name)}
		case t == xds.Endpoint && d.Hosts != nil:
			continue // hostRows prints the endpoints, as Envoy has them
		default:
			shown = layouts[t].rows(f, r.Message)
		}
		for _, row := range shown {
			if marked {
				row = append(row, mark(r))
			}
			if wide {
				row = append(row, r.Name, cmp.Or(r.Version, "-"))
			}
			rows = append(rows, row)
		}
	}
	if t == xds.Endpoint {
		rows = append(rows, hostRows(d, f, marked)...)
	}
	if err := Table(w, rows); err != nil {
		return err
	}
	return notes(w, selected)
}

// mark returns the text of the column STATUS. An empty text means that the resource is in use, without a refused or
// withheld version.
func mark(r dump.Resource) string {
	switch {
	case r.Failure != nil:
		return r.Failure.Word()
	case r.Problem != nil:
		return "NOT READ"
	}
	if r.Where == "static" { // resources of the bootstrap are always in use
		return ""
	}
	return strings.ToUpper(r.Where)
}

// unknown returns the row of a resource without a decoded message. Only its name is known.
func unknown(t xds.Type, name string) []string {
	row := make([]string, len(layouts[t].heading))
	for i := range row {
		row[i] = "-"
	}
	at := 0
	switch t {
	case xds.Cluster:
		return clusterRow(name, "-", nil)
	case xds.Endpoint:
		at = len(row) - 1
	case xds.Listener, xds.Route, xds.Secret, xds.Extension: // the name is in the first column
	}
	row[at] = name
	return row
}

// notes prints a line for each resource that was refused, is withheld, or cannot be decoded.
func notes(w io.Writer, selected []dump.Resource) error {
	for _, r := range selected {
		var err error
		switch {
		case r.Failure != nil:
			has := "the proxy has no version"
			if r.Raw != nil {
				has = "the proxy has version " + orDash(r.Version)
			}
			_, err = fmt.Fprintf(w, "%s %s %s, version %s; %s; %s\n",
				r.Failure.Word(), r.Type.Noun(), Printable(r.Name), Printable(orDash(r.Failure.Version)),
				Printable(has), Printable(withoutWord(r.Failure.Details)))
		case r.Problem != nil: // protojson randomly uses one of two kinds of space in its errors
			_, err = fmt.Fprintf(w, "NOT READ %s %s: %s\n", r.Type.Noun(),
				Printable(r.Name), Printable(strings.ReplaceAll(r.Problem.Error(), "\u00a0", " ")))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// withoutWord removes "withheld: " or "refused: " from the details, because the line already begins with the word.
func withoutWord(details string) string {
	for _, word := range []string{"withheld: ", "refused: "} {
		details = strings.TrimPrefix(details, word)
	}
	return details
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
