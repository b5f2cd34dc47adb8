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

// Filter selects the resources to print; an empty field selects all. Each field applies to the types that have it.
type Filter struct {
	FQDN      string // substring of a cluster's host
	Subset    string // substring of a cluster's subset
	Direction string // of a cluster: inbound or outbound
	Port      uint32 // of a cluster, a listener, an endpoint
	Name      string // of a route configuration
	Address   string // of a listener; of an endpoint, without port
	Type      string // of a listener: HTTP, TCP, HTTP+TCP
	Cluster   string // of an endpoint
	Status    string // of an endpoint: healthy, unhealthy, draining ...
}

// layout is the table of one type: its heading, the rows of one resource, and whether the filter selects a resource. m
// is nil for a resource that the proxy does not have.
type layout struct {
	heading []string
	rows    func(f Filter, m proto.Message) [][]string
	takes   func(f Filter, name string, m proto.Message) bool
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

// Select returns the selected resources of one type, sorted by name.
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

// order returns the sort key of a resource: clusters by host first, others by name.
func order(r dump.Resource) string {
	if direction, port, subset, host, ok := xds.ParseCluster(r.Name); ok {
		return fmt.Sprintf("%s\x00%05d\x00%s\x00%s", host, port, subset, direction)
	}
	return r.Name
}

// Config prints the table of one type, followed by its refused and withheld resources. wide adds the name and the
// version of each resource. The error is that of w.
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
			continue // from Envoy's hosts, below
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

// mark returns the text of the extra column; empty: the resource is as it should be.
func mark(r dump.Resource) string {
	switch {
	case r.Failure != nil:
		return r.Failure.Word()
	case r.Problem != nil:
		return "NOT READ"
	}
	if r.Where == "static" { // of the bootstrap, which is always in use
		return ""
	}
	return strings.ToUpper(r.Where)
}

// unknown returns the row of a resource of which only the name is known.
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
	case xds.Listener, xds.Route, xds.Secret, xds.Extension: // the first
	}
	row[at] = name
	return row
}

// notes prints the lines below the table.
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

// withoutWord removes the first word of the details, since the line starts with it.
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
