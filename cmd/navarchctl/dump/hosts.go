package dump

import (
	"encoding/json"
	"fmt"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
)

// Host is one endpoint in Envoy's /clusters. In Dump.Hosts, HostStatus is not nil.
type Host struct {
	Cluster string // name of the endpoint's cluster
	*adminv3.HostStatus
}

// ReadClusters sets Hosts to the endpoints in Envoy's /clusters?format=json, in the order of the JSON. Without an error
// Hosts is not nil afterwards, but may be empty. A cluster that cannot be decoded is skipped. The error reports that
// raw is not such JSON.
func (d *Dump) ReadClusters(raw []byte) error {
	var top object
	if err := json.Unmarshal(raw, &top); err != nil {
		return fmt.Errorf("this is no JSON object: %w", err)
	}
	d.Hosts = []Host{}
	var statuses []json.RawMessage
	if field := top.field("cluster_statuses"); field != nil { // Envoy omits it if it has no clusters
		if err := json.Unmarshal(field, &statuses); err != nil {
			return fmt.Errorf("cluster_statuses: %w", err)
		}
	}
	for _, one := range statuses {
		status := &adminv3.ClusterStatus{}
		if tolerant.Unmarshal(one, status) != nil {
			continue
		}
		for _, h := range status.GetHostStatuses() {
			d.Hosts = append(d.Hosts, Host{status.GetName(), h})
		}
	}
	return nil
}
