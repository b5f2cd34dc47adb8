package inject

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// podIn maps a kind (GROUP/KIND) to the path of the Pod template in its objects. Objects of other kinds are not
// changed.
var podIn = map[string][]string{
	"/Pod":                   {},
	"/ReplicationController": {"spec", "template"},
	"apps/Deployment":        {"spec", "template"},
	"apps/ReplicaSet":        {"spec", "template"},
	"apps/StatefulSet":       {"spec", "template"},
	"apps/DaemonSet":         {"spec", "template"},
	"batch/Job":              {"spec", "template"},
	"batch/CronJob":          {"spec", "jobTemplate", "spec", "template"},

	"apps.openshift.io/DeploymentConfig": {"spec", "template"},
}

// maxDepth bounds the nesting of Lists.
const maxDepth = 8

// Document injects the Pods of one YAML document: a Pod, a workload, or a List of Pods and workloads. Objects of other
// kinds are not changed. The parameter native has the meaning of Request.Native. A Pod without a namespace belongs to
// the namespace default. If no Pod is changed, the result named out is text itself, which is never modified. A changed
// document keeps unknown fields, but not comments and the order of fields.
//
// The result named notes contains sentences: the reason for each Pod without a proxy, and the results of Warnings. It
// is nil without such sentences, and may be nil with an error. Errors: the document is not a YAML object, Lists are
// nested more than 8 deep, a workload has no Pod template, a Pod or template does not decode, or a Pod cannot be
// injected (Inject).
func (s *Settings) Document(text []byte, native bool) (out []byte, notes []string, err error) {
	var object map[string]any
	if err := yaml.Unmarshal(text, &object); err != nil {
		return nil, nil, err
	}
	d := documents{Settings: s, native: native}
	if err := d.object(object, 0); err != nil {
		return nil, nil, err
	}
	if !d.changed {
		return text, d.notes, nil
	}
	out, err = yaml.Marshal(object)
	return out, d.notes, err
}

type documents struct {
	*Settings
	native  bool
	changed bool
	notes   []string
}

func (d *documents) object(object map[string]any, depth int) error {
	kind, _ := object["kind"].(string)
	version, _ := object["apiVersion"].(string)
	items, _ := object["items"].([]any)
	if strings.HasSuffix(kind, "List") && items != nil {
		if depth == maxDepth {
			return errors.New("Lists in Lists are nested too deeply")
		}
		for _, item := range items {
			if item, is := item.(map[string]any); is {
				if err := d.object(item, depth+1); err != nil {
					return err
				}
			}
		}
		return nil
	}
	group, _, grouped := strings.Cut(version, "/")
	if !grouped {
		group = ""
	}
	path, known := podIn[group+"/"+kind]
	if !known {
		return nil
	}
	meta, _ := object["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	namespace, _ := meta["namespace"].(string)
	if namespace == "" {
		namespace = corev1.NamespaceDefault
	}
	template := object
	for _, field := range path {
		var is bool
		if template, is = template[field].(map[string]any); !is {
			return fmt.Errorf("%s %s/%s has no %s", kind, namespace, name, strings.Join(path, "."))
		}
	}
	var owner *Owner
	if len(path) > 0 {
		owner = &Owner{version, kind, name}
	}
	if err := d.template(template, namespace, owner, kind+" "+namespace+"/"+name); err != nil {
		return fmt.Errorf("%s %s/%s: %w", kind, namespace, name, err)
	}
	return nil
}

// template injects a Pod, or the Pod template of a workload, in place. The last argument is the name of the Pod or
// workload in notes.
func (d *documents) template(template map[string]any, namespace string, owner *Owner, of string) error {
	for _, field := range []string{"metadata", "spec"} {
		if template[field] == nil {
			template[field] = map[string]any{}
		}
	}
	js, err := json.Marshal(map[string]any{"metadata": template["metadata"], "spec": template["spec"]})
	if err != nil {
		return err
	}
	pod := &corev1.Pod{}
	if err := json.Unmarshal(js, pod); err != nil {
		return err
	}
	if pod.Namespace != "" {
		namespace = pod.Namespace
	}
	if decision := d.Decide(pod, namespace); !decision.Inject {
		d.notes = append(d.notes, of+" gets no proxy. "+decision.Reason)
		return nil
	}
	out, err := d.Inject(context.Background(), Request{Pod: pod, Namespace: namespace, Owner: owner, Native: d.native})
	if err != nil {
		return err
	}
	for _, warning := range Warnings(pod, out) {
		d.notes = append(d.notes, of+": "+warning+".")
	}
	patch, err := Patch(pod, out)
	if err != nil || patch == nil {
		return err
	}
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return err
	}
	if js, err = operations.Apply(js); err != nil {
		return fmt.Errorf("the patch cannot be applied: %w", err)
	}
	var changed map[string]any
	if err := json.Unmarshal(js, &changed); err != nil {
		return err
	}
	template["metadata"], template["spec"], d.changed = changed["metadata"], changed["spec"], true
	return nil
}
