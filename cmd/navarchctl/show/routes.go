package show

import (
	"fmt"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
)

func takesRoute(f Filter, name string, _ proto.Message) bool { return f.Name == "" || f.Name == name }

// routeRows returns one row for each route. A virtual host without routes, or a configuration without virtual hosts,
// has one row with dashes.
func routeRows(_ Filter, m proto.Message) (rows [][]string) {
	rc, _ := m.(*routev3.RouteConfiguration)
	for _, vh := range rc.GetVirtualHosts() {
		for _, r := range vh.GetRoutes() {
			rows = append(rows, []string{rc.GetName(), vh.GetName(), domains(vh.GetDomains()), match(r.GetMatch()), origin(r.GetMetadata())})
		}
		if len(vh.GetRoutes()) == 0 {
			rows = append(rows, []string{rc.GetName(), vh.GetName(), domains(vh.GetDomains()), "-", "-"})
		}
	}
	if rows == nil {
		rows = [][]string{{rc.GetName(), "-", "-", "-", "-"}}
	}
	return rows
}

// domains lists the first two domains and the number of the others. A Service of Kubernetes has about ten domains.
func domains(all []string) string {
	if more := len(all) - 2; more > 0 {
		return strings.Join(all[:2], ", ") + fmt.Sprintf(" + %d more", more)
	}
	return orDash(strings.Join(all, ", "))
}

// match describes the requests that a route matches: first the path, then further conditions.
func match(m *routev3.RouteMatch) string {
	var said []string
	switch p := m.GetPathSpecifier().(type) {
	case *routev3.RouteMatch_Prefix:
		said = append(said, p.Prefix+"*")
	case *routev3.RouteMatch_Path:
		said = append(said, p.Path)
	case *routev3.RouteMatch_PathSeparatedPrefix:
		said = append(said, p.PathSeparatedPrefix+"/*")
	case *routev3.RouteMatch_SafeRegex:
		said = append(said, "regex "+p.SafeRegex.GetRegex())
	case *routev3.RouteMatch_ConnectMatcher_:
		said = append(said, "CONNECT")
	case *routev3.RouteMatch_PathMatchPolicy:
		said = append(said, p.PathMatchPolicy.GetName())
	default:
		said = append(said, "-")
	}
	for _, h := range m.GetHeaders() {
		not := ""
		if h.GetInvertMatch() {
			not = "not "
		}
		said = append(said, not+"header "+h.GetName())
	}
	for _, d := range m.GetDynamicMetadata() {
		not := ""
		if d.GetInvert() {
			not = "not "
		}
		said = append(said, not+"metadata "+d.GetFilter())
	}
	for _, q := range m.GetQueryParameters() {
		said = append(said, "query "+q.GetName())
	}
	if p := m.GetRuntimeFraction().GetDefaultValue(); p != nil {
		said = append(said, fmt.Sprintf("%d of %s", p.GetNumerator(), p.GetDenominator()))
	}
	return strings.Join(said, ", ")
}
