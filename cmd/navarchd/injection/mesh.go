package injection

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"sync/atomic"

	"google.golang.org/protobuf/proto"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/status"
)

// Mesh keeps the mesh configuration for a process that follows no records: ConfigMap istio[-rev]. One that cannot be read changes nothing.
type Mesh struct {
	normal  *normal.Normalizer
	log     *slog.Logger
	current atomic.Pointer[meshv1alpha1.MeshConfig]
}

var _ status.Seen[corev1.ConfigMap] = (*Mesh)(nil)

// NewMesh knows nothing before it is told.
func NewMesh(n *normal.Normalizer, log *slog.Logger) *Mesh { return &Mesh{normal: n, log: log} }

// Name is that of the ConfigMap.
func (m *Mesh) Name() string { return m.normal.MeshID().Name }

// Current is the configuration, with its defaults; nil: it is not known yet.
func (m *Mesh) Current() *meshv1alpha1.MeshConfig { return m.current.Load() }

func (m *Mesh) key() status.Key {
	id := m.normal.MeshID()
	return status.Key{Namespace: id.Namespace, Name: id.Name}
}

// Replace implements status.Seen.
func (m *Mesh) Replace(all map[status.Key]status.Found[corev1.ConfigMap]) { m.use(all[m.key()].Object) }

// Observe implements status.Seen.
func (m *Mesh) Observe(k status.Key, f status.Found[corev1.ConfigMap]) {
	if k == m.key() {
		m.use(f.Object)
	}
}

// use takes the ConfigMap; nil: there is none, which is a mesh with all defaults, unless there was one.
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
		m.log.Error("mesh configuration cannot be read; the previous one stays in use, if there was one", obs.KeyProblem, fmt.Sprint(read.Problems))
		return
	}
	if read.Unsaid {
		m.without("key mesh", read.Config)
		return
	}
	m.current.Store(read.Config)
}

// without has the previous configuration stay in use, or the defaults where there is none.
func (m *Mesh) without(what string, defaults *meshv1alpha1.MeshConfig) {
	if !m.current.CompareAndSwap(nil, defaults) && !proto.Equal(m.current.Load(), defaults) {
		m.log.Error("the mesh configuration is missing; the previous one stays in use", obs.KeyReason, what)
	}
}
