package show

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/cmd/navarchctl/dump"
)

// takesAssignment reports whether the filter selects an assignment (the endpoints of a cluster). If a field for
// endpoints is set, one of the endpoints must match. If no such field is set, empty and undecoded assignments are
// selected too.
func takesAssignment(f Filter, name string, m proto.Message) bool {
	if f.Cluster != "" && !strings.EqualFold(f.Cluster, name) {
		return false
	}
	a, _ := m.(*endpointv3.ClusterLoadAssignment)
	return f.Address+f.Status == "" && f.Port == 0 || a != nil && len(endpointRows(f, a)) > 0
}

func (f Filter) takesEndpoint(address *corev3.Address, health string) bool {
	host, port := hostPort(address)
	return (f.Address == "" || strings.EqualFold(host, f.Address)) &&
		(f.Port == 0 || f.Port == port) && (f.Status == "" || strings.EqualFold(health, f.Status))
}

// endpointRows returns one row for each selected endpoint of an assignment. If the assignment is empty and the filter
// has no field for endpoints, it returns a row of dashes. The results of outlier checks are unknown, because only
// Envoy's /clusters has them.
func endpointRows(f Filter, m proto.Message) (rows [][]string) {
	a, _ := m.(*endpointv3.ClusterLoadAssignment)
	for _, group := range a.GetEndpoints() {
		for _, e := range group.GetLbEndpoints() {
			address, health := e.GetEndpoint().GetAddress(), healthOf(e.GetHealthStatus())
			if f.takesEndpoint(address, health) {
				weight := max(e.GetLoadBalancingWeight().GetValue(), 1) // unset means 1
				rows = append(rows, []string{addressText(address), health,
					"-", strconv.Itoa(int(weight)), locality(group.GetLocality()), a.GetClusterName()})
			}
		}
	}
	if rows == nil && f.Address+f.Status == "" && f.Port == 0 {
		rows = [][]string{{"-", "-", "-", "-", "-", a.GetClusterName()}}
	}
	return rows
}

// healthOf returns the name of a health status. It returns HEALTHY for UNKNOWN, as Envoy treats such endpoints.
func healthOf(s corev3.HealthStatus) string {
	if s == corev3.HealthStatus_UNKNOWN {
		return corev3.HealthStatus_HEALTHY.String()
	}
	return s.String()
}

// hostRows returns one row for each endpoint of Envoy's /clusters that the filter selects, sorted by cluster. If marked
// is set, the table has a column STATUS, which is empty in these rows.
func hostRows(d *dump.Dump, f Filter, marked bool) (rows [][]string) {
	hosts := slices.Clone(d.Hosts)
	slices.SortStableFunc(hosts, func(a, b dump.Host) int {
		return strings.Compare(order(dump.Resource{Name: a.Cluster}), order(dump.Resource{Name: b.Cluster}))
	})
	for _, h := range hosts {
		state := h.GetHealthStatus()
		health, outlier := healthOf(state.GetEdsHealthStatus()), "OK"
		if state.GetFailedActiveHealthCheck() {
			health = corev3.HealthStatus_UNHEALTHY.String()
		}
		if state.GetFailedOutlierCheck() {
			outlier = "FAILED"
		}
		if f.Cluster != "" && !strings.EqualFold(f.Cluster, h.Cluster) || !f.takesEndpoint(h.GetAddress(), health) {
			continue
		}
		row := []string{addressText(h.GetAddress()), health, outlier, strconv.Itoa(int(h.GetWeight())), locality(h.GetLocality()), h.Cluster}
		if marked {
			row = append(row, "")
		}
		rows = append(rows, row)
	}
	return rows
}

func addressText(a *corev3.Address) string {
	host, port := hostPort(a)
	if a.GetSocketAddress() == nil {
		return host
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

func locality(l *corev3.Locality) string {
	parts := slices.DeleteFunc([]string{l.GetRegion(), l.GetZone(), l.GetSubZone()}, func(s string) bool { return s == "" })
	return cmp.Or(strings.Join(parts, "/"), "-")
}
