package dump

import (
	"encoding/json"
	"fmt"

	adminv3 "github.com/envoyproxy/go-control-plane/envoy/admin/v3"
)

// Host is one endpoint in Envoy's /clusters.
type Host struct {
	Cluster string
	*adminv3.HostStatus
}

// ReadClusters adds the content of Envoy's /clusters?format=json. A cluster that does not parse is skipped. An error:
// raw has another form.
func (d *Dump) ReadClusters(raw []byte) error {
	var top object
	if err := json.Unmarshal(raw, &top); err != nil {
		return fmt.Errorf("this is no JSON object: %w", err)
	}
	d.Hosts = []Host{}
	var statuses []json.RawMessage
	if field := top.field("cluster_statuses"); field != nil { // nil if Envoy has no clusters
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
