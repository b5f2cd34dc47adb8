package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"istio.io/api/annotation"
	"istio.io/api/label"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"navarch.io/navarch/cmd/navarchctl/cluster"
	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/store/admit/inject"
	"navarch.io/navarch/store/apiserver"
	"navarch.io/navarch/store/model"
)

// injectionCheck contains the options of `navarchctl check-inject`.
type injectionCheck struct {
	api       *apiserver.Client
	namespace string // of the Pod or Deployment
	format    output
}

func checkInjectCommand() *cobra.Command {
	in, c := &cluster.Flags{}, &injectionCheck{}
	cmd := &cobra.Command{
		Use:   "check-inject POD|deploy/NAME",
		Short: "Say whether a Pod is given a proxy, by which webhook, and why",
		Long: `check-inject reads a Pod, or the template of a Deployment, its namespace, and the injection webhooks of the cluster. It says of each
webhook whether the labels of namespace and Pod select the Pod, and what the injector that is asked then decides, as the labels and the
ConfigMap are now: a Pod that runs may have been created when they were others.`,
		Example: `  navarchctl check-inject -n shop deploy/web`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			of, err := in.Open()
			if err != nil {
				return err
			}
			c.api = of.API
			return c.run(cmd, args[0])
		},
	}
	in.BindKubeconfig(cmd.Flags())
	cmd.Flags().StringVarP(&c.namespace, "namespace", "n", corev1.NamespaceDefault, "Namespace of the Pod.")
	c.format.bindRows(cmd)
	cmd.ValidArgsFunction = offerFirst(func(ctx context.Context, _ *cobra.Command, _ []string) ([]string, error) {
		below := "/namespaces/" + url.PathEscape(c.namespace)
		pods, err := listed(ctx, in, "/api/v1"+below+"/pods", nameOf)
		deployments, _ := listed(ctx, in, "/apis/apps/v1"+below+"/deployments", func(m *metav1.ObjectMeta) string { return "deploy/" + m.Name })
		return append(pods, deployments...), err
	})
	return cmd
}

// injected is the output of check-inject.
type injected struct {
	Webhooks []askedWebhook `json:"webhooks"`
	// Had is the status annotation that injection wrote to the Pod; empty: the Pod was created without a proxy.
	Had string `json:"had,omitempty"`
}

// askedWebhook describes an injection webhook, and whether its selectors match the Pod.
type askedWebhook struct {
	Webhook  string `json:"webhook"` // CONFIGURATION/NAME
	Revision string `json:"revision"`
	Asked    bool   `json:"asked"`              // the selectors match the labels of the namespace and the Pod
	Reason   string `json:"reason"`             // reason for the value of Asked, as one sentence
	Decision string `json:"decision,omitempty"` // decision of the injector, in words; empty unless Asked
}

func (c *injectionCheck) run(cmd *cobra.Command, name string) error {
	ctx := cmd.Context()
	pod, err := c.pod(ctx, name)
	if err != nil {
		return err
	}
	var namespace corev1.Namespace
	if err := c.get(ctx, "/api/v1/namespaces/"+url.PathEscape(c.namespace), &namespace); err != nil {
		return fmt.Errorf("Namespace %s: %w", c.namespace, err)
	}
	var all admissionregistrationv1.MutatingWebhookConfigurationList
	if err := c.get(ctx, "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", &all); err != nil {
		return fmt.Errorf("MutatingWebhookConfigurations: %w", err)
	}
	r, found := rows{}, injected{Webhooks: []askedWebhook{}, Had: pod.Annotations[annotation.SidecarStatus.Name]}
	for _, w := range injectingWebhooks(all.Items) {
		one := askedWebhook{Webhook: w.of + "/" + w.hook.Name, Revision: w.revision}
		if one.Asked, one.Reason = inject.Selects(w.hook, namespace.Labels, pod.Labels); one.Asked {
			one.Decision = c.decision(ctx, w, pod)
			r.names = append(r.names, one.Webhook)
		}
		found.Webhooks = append(found.Webhooks, one)
	}
	r.value, r.table = found, func(out io.Writer, _ bool) error { return found.write(out) }
	return c.format.write(cmd, r)
}

// write prints the webhooks, and then the decisions of their injectors.
func (f injected) write(out io.Writer) error {
	table, decisions := [][]string{{"WEBHOOK", "REVISION", "ASKED", "REASON"}}, ""
	for _, w := range f.Webhooks {
		table = append(table, []string{w.Webhook, w.Revision, strconv.FormatBool(w.Asked), w.Reason})
		if w.Asked {
			decisions += "\n" + show.Printable(w.Decision) + "\n"
		}
	}
	if err := show.Table(out, table); err != nil {
		return err
	}
	if decisions == "" {
		decisions = "\nNo webhook is asked: the Pod gets no proxy.\n"
	}
	if f.Had != "" {
		decisions += "It was given a proxy when it was created: " + show.Printable(f.Had) + "\n"
	}
	_, err := io.WriteString(out, decisions)
	return err
}

// pod reads a Pod, or makes a Pod from the Pod template of a Deployment. The argument called name has the form NAME,
// pod/NAME or deploy/NAME.
func (c *injectionCheck) pod(ctx context.Context, name string) (*corev1.Pod, error) {
	kind, after, there := strings.Cut(name, "/")
	if there && slices.Contains([]string{"deploy", "deployment", "deployments"}, kind) {
		var d struct {
			Spec struct{ Template corev1.PodTemplateSpec }
		}
		if err := c.get(ctx, "/apis/apps/v1/namespaces/"+url.PathEscape(c.namespace)+"/deployments/"+url.PathEscape(after), &d); err != nil {
			return nil, fmt.Errorf("Deployment %s/%s: %w", c.namespace, after, err)
		}
		return &corev1.Pod{ObjectMeta: d.Spec.Template.ObjectMeta, Spec: d.Spec.Template.Spec}, nil
	}
	if there && !slices.Contains([]string{"po", "pod", "pods"}, kind) {
		return nil, fmt.Errorf("%s: want a Pod, or deploy/NAME", name)
	}
	if !there {
		after = name
	}
	pod := &corev1.Pod{}
	if err := c.get(ctx, "/api/v1/namespaces/"+url.PathEscape(c.namespace)+"/pods/"+url.PathEscape(after), pod); err != nil {
		return nil, fmt.Errorf("Pod %s/%s: %w", c.namespace, after, err)
	}
	return pod, nil
}

// decision returns the decision of a webhook's injector about a Pod, as a sentence. If the decision cannot be known,
// the sentence says why.
func (c *injectionCheck) decision(ctx context.Context, w injectingWebhook, pod *corev1.Pod) string {
	who := "The injector that " + w.of + " names"
	service := w.hook.ClientConfig.Service
	if service == nil {
		return who + " is not in this cluster: its decision is unknown."
	}
	name := inject.NameOf("istio-sidecar-injector", w.revision)
	data, err := configMap(ctx, c.api, service.Namespace, name)
	if err != nil {
		return fmt.Sprintf("%s has a configuration that cannot be read: %v. Its decision is unknown.", who, err)
	}
	config, err := inject.ParseConfig("ConfigMap "+service.Namespace+"/"+name, data["config"], data["values"], os.Getenv)
	if err != nil {
		return fmt.Sprintf("%s cannot use its configuration: %v", who, err)
	}
	s := inject.Settings{Config: config, Mesh: model.MeshDefaults(), Namespace: service.Namespace, Revision: w.revision}
	d := s.Decide(pod, c.namespace)
	if !d.Inject {
		return who + " gives it no proxy. " + d.Reason
	}
	return who + " gives it a proxy. " + d.Reason
}

// get reads an object from the API server. The parameter into points to the variable that receives the object. If the
// object does not exist, the error says so.
func (c *injectionCheck) get(ctx context.Context, path string, into any) error {
	err := c.api.Do(ctx, http.MethodGet, path, nil, into)
	if apiserver.IsStatus(err, http.StatusNotFound) {
		return errors.New("it does not exist")
	}
	return err
}

// injectingWebhook is a webhook for sidecar injection: its name ends with sidecar-injector.istio.io, and
// inject.ParsePath accepts its path.
type injectingWebhook struct {
	of, revision string // the field of is the configuration's name; revision is the configuration's revision label, or "default"
	hook         *admissionregistrationv1.MutatingWebhook
}

// injectingWebhooks returns the injection webhooks of the given configurations, in the given order.
func injectingWebhooks(all []admissionregistrationv1.MutatingWebhookConfiguration) (some []injectingWebhook) {
	for i := range all {
		for j := range all[i].Webhooks {
			w := &all[i].Webhooks[j]
			path := ""
			if s := w.ClientConfig.Service; s != nil && s.Path != nil {
				path = *s.Path
			} else if u := w.ClientConfig.URL; u != nil {
				if parsed, err := url.Parse(*u); err == nil {
					path = parsed.Path
				}
			}
			if _, err := inject.ParsePath(path); err == nil && strings.HasSuffix(w.Name, "sidecar-injector.istio.io") {
				some = append(some, injectingWebhook{all[i].Name, cmp.Or(all[i].Labels[label.IoIstioRev.Name], "default"), w})
			}
		}
	}
	return some
}
