package show

import (
	"strconv"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/xds"
)

// takesCluster reports whether the filter selects a cluster. If a field for clusters is set, the filter selects only
// clusters with names in Istio's form direction|port|subset|host.
func takesCluster(f Filter, name string, _ proto.Message) bool {
	if f.FQDN+f.Subset+f.Direction == "" && f.Port == 0 {
		return true
	}
	direction, port, subset, host, _ := xds.ParseCluster(name)
	return strings.Contains(host, f.FQDN) && strings.Contains(subset, f.Subset) &&
		(f.Direction == "" || strings.EqualFold(direction, f.Direction)) && (f.Port == 0 || port == f.Port)
}

func clusterRows(_ Filter, m proto.Message) [][]string {
	c, _ := m.(*clusterv3.Cluster)
	kind := c.GetType().String()
	if custom := c.GetClusterType().GetName(); custom != "" {
		kind = custom
	}
	return [][]string{clusterRow(c.GetName(), kind, c.GetMetadata())}
}

// clusterRow returns the row of a cluster. It divides a name in Istio's form into the columns. For any other cluster,
// the row has the whole name, the type and the origin.
func clusterRow(name, kind string, metadata *corev3.Metadata) []string {
	direction, port, subset, host, ok := xds.ParseCluster(name)
	if !ok {
		return []string{name, "-", "-", "-", kind, origin(metadata)}
	}
	return []string{orDash(host), strconv.Itoa(int(port)), orDash(subset), orDash(direction), kind, origin(metadata)}
}

// origin returns "name.namespace" of the object from which a resource was made. The metadata key istio.config has the
// object's path (/apis/GROUP/VERSION/namespaces/NAMESPACE/KIND/NAME). origin returns "-" without that key, and the
// value itself if the value has another form.
func origin(metadata *corev3.Metadata) string {
	path := metadata.GetFilterMetadata()["istio"].GetFields()["config"].GetStringValue()
	parts := strings.Split(path, "/")
	if len(parts) != 8 || parts[1] != "apis" || parts[4] != "namespaces" {
		return orDash(path)
	}
	return parts[7] + "." + parts[5]
}
