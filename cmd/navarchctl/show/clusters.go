package show

import (
	"strconv"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/xds"
)

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

// clusterRow splits the name as istioctl does; other clusters have only a name and a type.
func clusterRow(name, kind string, metadata *corev3.Metadata) []string {
	direction, port, subset, host, ok := xds.ParseCluster(name)
	if !ok {
		return []string{name, "-", "-", "-", kind, origin(metadata)}
	}
	return []string{orDash(host), strconv.Itoa(int(port)), orDash(subset), orDash(direction), kind, origin(metadata)}
}

// origin returns the object that something was made from, "name.namespace", from the metadata istio.config of control
// planes (/apis/GROUP/VERSION/namespaces/NAMESPACE/KIND/NAME); "-": unknown.
func origin(metadata *corev3.Metadata) string {
	path := metadata.GetFilterMetadata()["istio"].GetFields()["config"].GetStringValue()
	parts := strings.Split(path, "/")
	if len(parts) != 8 || parts[1] != "apis" || parts[4] != "namespaces" {
		return orDash(path)
	}
	return parts[7] + "." + parts[5]
}
