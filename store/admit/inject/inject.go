// Package inject adds a proxy to Pods, as Istio's injector does. It decides whether a Pod gets a proxy, renders the
// templates of the ConfigMap istio-sidecar-injector[-rev], merges the result onto the Pod, and encodes the difference
// as a JSON patch. Handler serves the webhook, and Document injects YAML documents.
//
// In a Pod that was injected before, the author's probes and Prometheus annotations are restored first (again.go).
// Templates read this restored Pod. A second injection with the same Settings therefore changes nothing. Containers of
// the earlier injection stay in the Pod, and the containers of templates are merged onto them.
//
// Owns: the Settings in use, which are replaced as a whole, and for each Config a cache of parsed template results.
// Reads: the given Settings and Pod; a clock for metrics only. Never: calls an API server, reads the environment
// itself, changes its arguments.
package inject

import (
	"context"
	"errors"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	corev1 "k8s.io/api/core/v1"
)

// Names of containers. Users, dashboards and other injectors rely on them (istio: pkg/kube/inject).
const (
	ProxyContainer      = "istio-proxy" // the proxy with its agent, as a container or as an init container
	initContainer       = "istio-init"
	validationContainer = "istio-validation"
	coreDumpContainer   = "enable-core-dump"
)

// Settings are the configuration of the injection. They must not be modified once they are in use. Their methods are
// safe for concurrent use.
type Settings struct {
	Config    *Config                  // not nil
	Mesh      *meshv1alpha1.MeshConfig // with its defaults
	Proxies   ProxyConfigs             // nil: there are no ProxyConfigs
	Revision  string                   // of this control plane; empty: the default revision
	Namespace string                   // of this control plane
}

// Request is one Pod to inject.
type Request struct {
	Pod       *corev1.Pod // not nil; not modified
	Namespace string      // namespace of the request; used if the Pod itself states no namespace
	Path      Path        // from the webhook's URL; may be nil
	Owner     *Owner      // workload of the Pod; if nil, OwnerOf the Pod
	Native    bool        // all kubelets that may run the Pod support sidecar containers (KnowsSidecars)
}

// Inject returns a copy of the Pod with its proxy; the caller owns the copy. The copy has a namespace only if the Pod
// has one. Inject does not check whether the Pod should get a proxy (Settings.Decide). It fails for an invalid
// annotation, and for a template that is absent or fails. The error names the annotation or template. Inject also fails
// if the Pod has more than 16 templates, if the merged Pod is not valid, or if the context has ended.
func (s *Settings) Inject(ctx context.Context, r Request) (*corev1.Pod, error) {
	namespace := r.Pod.Namespace
	pod := r.Pod.DeepCopy()
	if pod.Namespace == "" {
		pod.Namespace = r.Namespace
	}
	if err := checkAnnotations(pod.Annotations); err != nil {
		return nil, err
	}
	if err := s.Config.values.allowsImage(pod.Annotations); err != nil {
		return nil, err
	}
	proxy, err := s.proxyConfig(pod)
	if err != nil {
		return nil, err
	}
	before, err := injectedBefore(pod)
	if err != nil {
		return nil, err
	}
	before.undo(pod)
	work := &task{settings: s, request: r, proxy: proxy, before: before, place: s.place(pod, r.Path, before), owner: ownerOf(pod, r.Owner)}
	work.revision = s.revisionOf(pod, work.owner, proxy)
	out, err := work.draw(ctx, pod)
	if err != nil {
		return nil, err
	}
	if out, err = work.own(pod, out); err != nil {
		return nil, err
	}
	if err := errors.Join(ctx.Err(), work.finish(pod, out)); err != nil {
		return nil, err
	}
	out.Namespace = namespace
	return out, nil
}

// task is the injection of one Pod.
type task struct {
	settings *Settings
	request  Request
	proxy    *meshv1alpha1.ProxyConfig
	before   injected
	place    place
	owner    Owner
	revision string // the revision to which the proxy connects
	drawn    names  // items that the templates added
}

// finish applies the steps that templates cannot express: the order of containers, metrics, probes and the status
// annotation. It changes pod, the result of the templates. The parameter original is the Pod without the templates'
// additions. The method fails if the annotation with scrape targets is invalid or names the agent's port, or if a value
// cannot be encoded.
func (w *task) finish(original, pod *corev1.Pod) error {
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	order(pod, w.proxy.GetHoldApplicationUntilProxyStarts().GetValue() || w.settings.Config.values.holds())
	port := statusPort(pod.Annotations, w.proxy)
	sidecar := container(ProxyContainer, pod)
	w.place.onto(pod, sidecar)
	if err := mergeMetrics(pod, sidecar, w.settings.Mesh, port); err != nil {
		return err
	}
	if sidecar != nil && w.settings.Config.rewritesProbes(pod.Annotations) {
		if err := rewriteProbes(pod, sidecar, port); err != nil {
			return err
		}
	}
	for name, value := range w.settings.Config.InjectedAnnotations {
		pod.Annotations[name] = value
	}
	delete(pod.Annotations, statusAnnotation)
	w.drawn.Labels = added(original.Labels, pod.Labels, w.before.names.Labels)
	w.drawn.Annotations = added(original.Annotations, pod.Annotations, w.before.names.Annotations)
	status, err := w.drawn.status(w.revision)
	if err != nil {
		return err
	}
	pod.Annotations[statusAnnotation] = status
	return nil
}

// container returns the container or init container with the given name, or nil for an unknown name. The result points
// into the Pod.
func container(name string, pod *corev1.Pod) *corev1.Container {
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		if i := index(list, name); i >= 0 {
			return &list[i]
		}
	}
	return nil
}

func index(list []corev1.Container, name string) int {
	for i := range list {
		if list[i].Name == name {
			return i
		}
	}
	return -1
}

// setEnv sets an environment variable of a container. An existing variable of the same name is replaced in place.
func setEnv(c *corev1.Container, name, value string) {
	for i := range c.Env {
		if c.Env[i].Name == name {
			c.Env[i] = corev1.EnvVar{Name: name, Value: value}
			return
		}
	}
	c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: value})
}
