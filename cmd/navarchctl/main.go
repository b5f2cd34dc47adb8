// Command navarchctl is the operator's tool. It shows a proxy's present or planned configuration and its inputs, from a
// server, an Envoy, a file, or offline from a folder. It also operates the certificate authority.
//
// Owns: nothing.
// Reads: configuration folders, /debug of navarchd, Envoy's admin, dumps.
// Never: writes configuration, except what apply is given.
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/cmd/internal/wire"
	_ "navarch.io/navarch/push/build/patch/envoytypes" // types that EnvoyFilters may name
	"navarch.io/navarch/store/obs"
)

func main() { wire.Main(root()) }

// exitError ends a command with an exit code that says what the command has found. The exit code of a failure is 1.
type exitError struct {
	code int
	text string
}

// Error returns the text.
func (e exitError) Error() string { return e.text }

// ExitCode implements the interface of wire.Main.
func (e exitError) ExitCode() int { return e.code }

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "navarchctl",
		Short: "See what a proxy gets from Navarch, and why",
		Long: `navarchctl asks navarchd's debug pages, the admin interface of an Envoy (--envoy), a saved dump (--file), or no server at all
(--config-dir). The replicas of a control plane in Kubernetes are found by the kubeconfig (--kubeconfig, --context), in the namespace
--istio-namespace, by the labels app=istiod and istio.io/rev (--revision), and asked through the API server, as by kubectl port-forward. --server
is the address of one instead; without a kubeconfig it is 127.0.0.1:8080.`,
		Example: `  # Who is in sync, who refused what, what is withheld.
  navarchctl ps

  # Why a proxy has a cluster.
  navarchctl explain --server 127.0.0.1:8080 --proxy web-0.shop 'outbound|80||catalog.shop.svc.cluster.local'`,
		Version:       obs.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.SetGlobalNormalizationFunc(istioNames)
	cmd.AddCommand(renderCommand(), planCommand(), explainCommand(), whyCommand(), authzCommand(), whoCanCommand(), testCommand(),
		patchesCommand(), analyzeCommand(), problemsCommand(), leaderCommand(), proxyStatusCommand(), proxyConfigCommand(),
		waitCommand(), applyCommand(), experimentalCommand(), versionCommand(), logCommand(),
		tokenCommand(), vmCommand(), caCommand(), storeCommand(), removalsCommand(),
		remoteSecretCommand(), injectCommand(), checkInjectCommand(), webhookCommand(),
		checkCommand(), tagCommand(), uninstallCommand(), migrateCommand())
	completeContexts(cmd)
	return cmd
}

// istioFlags maps istioctl's names of flags to ours.
var istioFlags = map[string]string{"istioNamespace": "istio-namespace", "failure-threshold": "fail-threshold", "use-kube": "live",
	"list-analyzers": "list"}

// istioNames accepts flags by istioctl's names, too.
func istioNames(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	return pflag.NormalizedName(cmp.Or(istioFlags[name], name))
}

// output is the -o flag. "table" is an alias of "short", and "log" of "text", as istioctl has them.
type output string

func (o *output) bind(cmd *cobra.Command, first string, others ...string) {
	*o = output(first)
	choices := append([]string{first}, others...)
	cmd.PersistentFlags().VarP(&choice{(*string)(o), "format", choices}, "output", "o", "Format: "+strings.Join(choices, ", ")+".")
	completes(cmd, "output", choices...)
}

// short is the format for people.
const short = "short"

// choice is a flag value from a closed set; upper and lower case are equal.
type choice struct {
	into *string
	kind string // type in the help
	of   []string
}

func (c *choice) String() string { return *c.into }
func (c *choice) Type() string   { return c.kind }
func (c *choice) Set(v string) error {
	for _, allowed := range c.of {
		if strings.EqualFold(v, allowed) || v == "table" && allowed == short || v == "log" && allowed == text {
			*c.into = allowed
			return nil
		}
	}
	return fmt.Errorf("must be one of %s", strings.Join(c.of, ", "))
}

// print writes a value as JSON or YAML.
func (o output) print(w io.Writer, v any) error {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if o == "yaml" {
		if raw, err = yaml.JSONToYAML(raw); err != nil {
			return err
		}
		_, err = w.Write(raw)
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", raw)
	return err
}

var (
	errProblems = errors.New("the configuration has problems (--strict)")
	errMarked   = errors.New("something was refused or is withheld (--exit-code)")
)
