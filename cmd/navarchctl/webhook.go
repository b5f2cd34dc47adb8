package main

import (
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/store/admit/inject"
)

// webhookCommand returns the command that prints the MutatingWebhookConfiguration of an injector.
func webhookCommand() *cobra.Command {
	var w inject.Webhooks
	cmd := &cobra.Command{
		Use:   "injection-webhook",
		Short: "Print the MutatingWebhookConfiguration of a revision, or of a tag for it, with Istio's names and selectors",
		Long: `injection-webhook prints a MutatingWebhookConfiguration, and changes no cluster. Its caBundle is empty: the control plane keeps it, since
it changes with the mesh's root. A namespace label istio.io/rev selects its revision, or tag, for all Pods of the namespace. A namespace label
istio-injection disables all revision labels. Without either, a Pod's label istio.io/rev selects the revision; sidecar.istio.io/inject: "true" selects
the default revision.`,
		Example: `  # Tag prod stands for revision canary from now on.
  navarchctl injection-webhook --revision canary --tag prod | kubectl apply -f -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := yaml.Marshal(w.Configuration())
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	f := cmd.Flags()
	f.StringVarP(&w.Namespace, "istio-namespace", "i", "istio-system", "Namespace of the control plane.")
	f.StringVarP(&w.Revision, "revision", "r", "", "Revision of the control plane that answers (default: the default one).")
	f.StringVar(&w.Tag, "tag", "", "Name of a tag that stands for the revision; default: it is the default revision.")
	f.StringVar(&w.Path, "path", "/inject", "Path of the webhook, such as /inject/cluster/west/net/network-2 for another cluster's Pods.")
	f.BoolVar(&w.Everywhere, "everywhere", false,
		"Inject Pods without injection labels in namespaces without injection labels, too.")
	return cmd
}
