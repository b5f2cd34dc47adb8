package suggest

import (
	"navarch.io/navarch/cmd/navarchctl/compare"
	"navarch.io/navarch/push/preview"
)

// Report contains the suggestions for all namespaces, and the plan of the suggested Sidecars.
type Report struct {
	SchemaVersion int              `json:"schemaVersion"` // 1
	Suggestions   []Entry          `json:"suggestions"`
	Plan          *preview.Report  `json:"plan,omitempty"`   // nil: no Sidecar is suggested
	Unread        []compare.Unread `json:"unread,omitempty"` // proxies whose usage could not be read
}

// Entry is a suggestion with its Sidecar, and the savings of the proxy that saves most bytes. The numbers are 0 if they
// were not measured.
type Entry struct {
	Suggestion
	Sidecar      map[string]any `json:"sidecar,omitempty"` // Suggestion.Object; nil: Skipped is the reason
	ClustersNow  int            `json:"clustersNow"`       // without the Sidecar
	ClustersThen int            `json:"clustersThen"`      // with the Sidecar
	BytesNow     int64          `json:"bytesNow"`          // of all resources that a proxy is sent when it connects
	BytesThen    int64          `json:"bytesThen"`         // the same with the Sidecar
	MemorySaved  int64          `json:"memorySaved"`       // bytes of Envoy's memory, estimated by Memory
}

// perCluster is Envoy's memory in bytes for a cluster and its share of assignments, listeners and routes. It is
// measured: an Envoy with 3,000 clusters used 273 MiB, and 70 MiB with a Sidecar that imports five.
const perCluster = (273 - 70) << 20 / 2995

// Memory estimates the bytes of Envoy's memory for a number of clusters; 0 for a negative number.
func Memory(clusters int) int64 { return int64(max(clusters, 0)) * perCluster }
