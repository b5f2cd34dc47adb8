package injection

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/proto"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/source/kube"
	"navarch.io/navarch/store/status"
)

// Mesh follows the mesh configuration for a process that does not read the stored records. The configuration comes from
// the ConfigMap istio[-REVISION]. Fields that this ConfigMap does not set come from a shared ConfigMap. If no ConfigMap
// exists, the configuration has the defaults. A configuration that is in use stays in use while the ConfigMaps cannot
// be parsed, are all missing, or all lack the key mesh. Safe for concurrent use.
type Mesh struct {
	normal  *normal.Normalizer
	shared  string // name of the ConfigMap that several revisions share (SHARED_MESH_CONFIG); empty: no such ConfigMap
	log     *slog.Logger
	current atomic.Pointer[meshv1alpha1.MeshConfig]

	mu     sync.Mutex // guards the fields below; no other lock is taken under it
	maps   kube.Meshes
	listed map[string]bool // names of ConfigMaps that were listed
}

// NewMesh returns a Mesh without a configuration. shared is the name of a ConfigMap that several revisions share. If
// shared is empty or the name of the revision's own ConfigMap, there is no shared ConfigMap. The revision's own
// ConfigMap is the one that n.MeshID names.
func NewMesh(n *normal.Normalizer, shared string, log *slog.Logger) *Mesh {
	if shared == n.MeshID().Name {
		shared = ""
	}
	return &Mesh{normal: n, shared: shared, log: log, listed: map[string]bool{}}
}

// Names returns the name of the revision's own ConfigMap and, if there is one, the name of the shared ConfigMap. The
// caller must follow each ConfigMap with the receiver that Seen returns for the name.
func (m *Mesh) Names() []string {
	if m.shared == "" {
		return []string{m.normal.MeshID().Name}
	}
	return []string{m.normal.MeshID().Name, m.shared}
}

// Current returns the configuration in use, with defaults for unset fields. The caller must not change it. nil: not all
// ConfigMaps were listed yet, or the configuration was never valid.
func (m *Mesh) Current() *meshv1alpha1.MeshConfig { return m.current.Load() }

// Seen returns the receiver of the versions of one ConfigMap. name is one of Names.
func (m *Mesh) Seen(name string) status.Seen[corev1.ConfigMap] {
	return seenMesh{m, status.Key{Namespace: m.normal.MeshID().Namespace, Name: name}}
}

type seenMesh struct {
	mesh *Mesh
	key  status.Key
}

// Replace implements status.Seen.
func (s seenMesh) Replace(all map[status.Key]status.Found[corev1.ConfigMap]) {
	s.mesh.take(s.key.Name, all[s.key].Object)
}

// Observe implements status.Seen.
func (s seenMesh) Observe(k status.Key, f status.Found[corev1.ConfigMap]) {
	if k == s.key {
		s.mesh.take(s.key.Name, f.Object)
	}
}

// take stores the present version of a ConfigMap; nil: the ConfigMap does not exist. Once all ConfigMaps were listed,
// take adopts the merged configuration.
func (m *Mesh) take(name string, there *corev1.ConfigMap) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.listed[name] = true
	if name == m.shared {
		m.maps.Shared = there
	} else {
		m.maps.Own = there
	}
	if len(m.listed) < len(m.Names()) {
		return
	}
	id := m.normal.MeshID()
	merged := m.maps.Merged(id.Namespace, id.Name)
	if m.maps.Wrong != "" {
		m.log.Error("the shared mesh configuration cannot be read", obs.KeyName, m.shared, obs.KeyProblem, m.maps.Wrong)
	}
	m.use(merged)
}

// use adopts the merged ConfigMap. A nil argument means that no ConfigMap exists. The previous configuration then stays
// in use. If there is no previous configuration, the defaults apply.
func (m *Mesh) use(there *corev1.ConfigMap) {
	if there == nil {
		m.without("the ConfigMap", model.MeshDefaults())
		return
	}
	js, err := json.Marshal(map[string]any{"data": there.Data})
	if err != nil {
		m.log.Error("mesh configuration cannot be read", obs.KeyError, err)
		return
	}
	read := m.normal.ParseMesh(&object.Object{ID: m.normal.MeshID(), JSON: js})
	if read.Config == nil {
		m.log.Error("mesh configuration cannot be read; the previous one stays in use, if any",
			obs.KeyProblem, fmt.Sprint(read.Problems))
		return
	}
	if read.Unsaid {
		m.without("key mesh", read.Config)
		return
	}
	m.current.Store(read.Config)
}

// without keeps the previous configuration in use, or adopts the defaults if there is no previous configuration. The
// argument what names the missing part in the log.
func (m *Mesh) without(what string, defaults *meshv1alpha1.MeshConfig) {
	if !m.current.CompareAndSwap(nil, defaults) && !proto.Equal(m.current.Load(), defaults) {
		m.log.Error("the mesh configuration is missing; the previous one stays in use", obs.KeyReason, what)
	}
}
