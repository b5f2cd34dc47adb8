package inject

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"istio.io/api/annotation"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// templateData is the input of templates. The names and types of its fields are those of Istio
// (pkg/kube/inject.SidecarTemplateData). It also has fields of earlier versions of Istio, because templates still use
// them.
type templateData struct {
	TypeMeta                 metav1.TypeMeta      // of the workload
	DeploymentMeta           types.NamespacedName // of the workload
	ObjectMeta               metav1.ObjectMeta
	Spec                     corev1.PodSpec
	ProxyConfig              *meshv1alpha1.ProxyConfig
	MeshConfig               *meshv1alpha1.MeshConfig
	Values                   map[string]any
	Revision                 string
	NativeSidecars           bool
	ProxyImage               string
	ProxyInitImage           string
	ProxyUID                 int64
	ProxyGID                 int64
	InboundTrafficPolicyMode string
	CompliancePolicy         string
	EstimatedConcurrency     int
}

// proxyUser is the user ID and the group ID of a proxy's process.
const proxyUser = 1337

var podSchema = func() strategicpatch.PatchMetaFromStruct {
	schema, err := strategicpatch.NewPatchMetaFromStruct(corev1.Pod{})
	if err != nil {
		panic(fmt.Sprintf("the type of Pods has no patch strategies: %v", err))
	}
	return schema
}()

func (w *task) data(pod *corev1.Pod) *templateData {
	s := w.settings
	written := w.before.written(pod)
	owner := w.owner
	values := s.Config.allValues
	if values != nil {
		values = runtime.DeepCopyJSON(values) // templates may change the map
		if w.revision != s.Revision {
			values["revision"] = w.revision
		}
	}
	mode := "passthrough"
	if s.Mesh.GetInboundTrafficPolicy().GetMode() == meshv1alpha1.MeshConfig_InboundTrafficPolicy_LOCALHOST {
		mode = "localhost"
	}
	return &templateData{
		TypeMeta:       metav1.TypeMeta{APIVersion: owner.APIVersion, Kind: owner.Kind},
		DeploymentMeta: types.NamespacedName{Namespace: pod.Namespace, Name: owner.Name},
		ObjectMeta:     written.ObjectMeta, Spec: written.Spec,
		ProxyConfig: w.proxy, MeshConfig: s.Mesh, Values: values, Revision: w.revision, NativeSidecars: w.request.Native,
		ProxyImage:     s.Config.values.image(s.Config.values.Global.Proxy.Image, w.proxy, pod.Annotations),
		ProxyInitImage: s.Config.values.image(s.Config.values.Global.ProxyInit.Image, w.proxy, pod.Annotations),
		ProxyUID:       proxyUser, ProxyGID: proxyUser, InboundTrafficPolicyMode: mode, CompliancePolicy: s.Config.compliance,
	}
}

// draw renders the templates of a Pod, and merges their results into the Pod one after the other. It returns the merged
// Pod.
func (w *task) draw(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	config := w.settings.Config
	chosen := config.templatesOf(pod.Annotations)
	if len(chosen) > maxTemplates {
		from := config.Source + ", key config, defaultTemplates"
		if _, there := pod.Annotations[annotation.InjectTemplates.Name]; there {
			from = "annotation " + annotation.InjectTemplates.Name
		}
		return nil, fmt.Errorf("%s: %d templates, at most %d are taken", from, len(chosen), maxTemplates)
	}
	merged, err := toMap(pod)
	if err != nil {
		return nil, err
	}
	data := w.data(pod)
	for _, name := range chosen {
		overlay, err := config.overlay(ctx, name, data)
		if err != nil {
			return nil, err
		}
		if err := w.drawn.add(overlay); err != nil {
			return nil, config.blame(name, err)
		}
		if w.drawn.native() {
			moveToInit(merged)
		}
		if merged, err = merge(merged, overlay, config.parsed[name].directs); err != nil {
			return nil, config.blame(name, fmt.Errorf("what it gives cannot be merged onto the Pod: %w", err))
		}
	}
	return toPod(merged)
}

// overlay renders a template and parses the result as a part of a Pod.
func (c *Config) overlay(ctx context.Context, name string, data *templateData) (map[string]any, error) {
	t, err := c.template(name)
	if err != nil {
		return nil, err
	}
	text := bounded{ctx: ctx}
	if err := t.Execute(&text, data); err != nil {
		return nil, c.blame(name, err)
	}
	out, err := c.overlays.parse(text.String())
	if err != nil {
		return nil, c.blame(name, err)
	}
	return out, nil
}

// moveToInit moves the proxy's container from the containers to the init containers. It changes nothing if the
// containers do not include the proxy. It is called if a template makes the proxy an init container. The Pod's author
// may have written settings for the proxy among the containers.
func moveToInit(pod map[string]any) {
	spec, _ := pod["spec"].(map[string]any)
	list, _ := spec["containers"].([]any)
	for i, c := range list {
		if c, is := c.(map[string]any); is && c["name"] == ProxyContainer {
			init, _ := spec["initContainers"].([]any)
			spec["initContainers"] = append(init, c)
			spec["containers"] = append(list[:i:i], list[i+1:]...)
			return
		}
	}
}

func toMap(pod *corev1.Pod) (out map[string]any, err error) {
	js, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	return out, json.Unmarshal(js, &out)
}

func toPod(m map[string]any) (*corev1.Pod, error) {
	js, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	out := &corev1.Pod{}
	if err := json.Unmarshal(js, out); err != nil {
		return nil, fmt.Errorf("templates and Pod together are no Pod: %w", err)
	}
	return out, nil
}

// names lists the names of the items that templates add to a Pod. Its JSON is the value of the annotation
// sidecar.istio.io/status. Labels and Annotations list keys that the Pod did not have before. Istio's injector does not
// write Labels and Annotations. Navarch needs them for a second injection, in which templates must only read the labels
// of the Pod's author.
type names struct {
	InitContainers   []string `json:"initContainers"`
	Containers       []string `json:"containers"`
	Volumes          []string `json:"volumes"`
	ImagePullSecrets []string `json:"imagePullSecrets"`
	Revision         string   `json:"revision"`
	Labels           []string `json:"labels,omitempty"`
	Annotations      []string `json:"annotations,omitempty"`
}

// statusAnnotation marks a Pod as injected, for all injectors.
var statusAnnotation = annotation.SidecarStatus.Name

// add adds the names in an overlay (the result of a template). It fails for a field of the wrong JSON type, and for an
// element without a name.
func (n *names) add(overlay map[string]any) error {
	spec, err := as[map[string]any](overlay["spec"], "spec", "an object")
	if err != nil {
		return err
	}
	for _, list := range []struct {
		field string
		to    *[]string
	}{{"initContainers", &n.InitContainers}, {"containers", &n.Containers}, {"volumes", &n.Volumes},
		{"imagePullSecrets", &n.ImagePullSecrets}} {
		elements, err := as[[]any](spec[list.field], "spec."+list.field, "a list")
		if err != nil {
			return err
		}
		seen := setOf(*list.to)
		for _, e := range elements {
			object, err := as[map[string]any](e, "an element of spec."+list.field, "an object")
			if err != nil {
				return err
			}
			name, err := as[string](object["name"], "a name in spec."+list.field, "a string")
			if err != nil {
				return err
			}
			if name == "" {
				return fmt.Errorf("an element of spec.%s in its output is without a name", list.field)
			}
			if !seen[name] {
				seen[name] = true
				*list.to = append(*list.to, name)
			}
		}
	}
	return nil
}

// as converts a JSON value to a type. A null value becomes the zero value. The parameters field and kind describe the
// value and the wanted type in the error.
func as[T any](value any, field, kind string) (out T, err error) {
	out, is := value.(T)
	if !is && value != nil {
		return out, fmt.Errorf("its output is not a part of a Pod: %s is not %s", field, kind)
	}
	return out, nil
}

func has(list []string, name string) bool { return slices.Contains(list, name) }

func setOf(list []string) map[string]bool {
	set := make(map[string]bool, len(list))
	for _, name := range list {
		set[name] = true
	}
	return set
}

// native reports whether the proxy is a native sidecar (an init container that keeps running).
func (n *names) native() bool { return has(n.InitContainers, ProxyContainer) }

// added returns the keys that injections have added to a map, sorted. They are the keys of the current map that the
// original map lacks, and those that an earlier injection added.
func added(original, current map[string]string, earlier []string) (all []string) {
	ours := setOf(earlier)
	for _, key := range sorted(current) {
		if _, there := original[key]; !there || ours[key] {
			all = append(all, key)
		}
	}
	return all
}

func (n names) status(revision string) (string, error) {
	n.Revision = cmp.Or(revision, "default")
	js, err := json.Marshal(n)
	return string(js), err
}
