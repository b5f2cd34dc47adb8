// Command navarchctl is the operator's tool: what a proxy would get and why, offline from a folder or from a server.
//
// Owns: nothing.  Reads: configuration folders, /debug of navarchd, Envoy's admin.  Never: writes configuration.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/cmd/internal/wire"
	"navarch.io/navarch/store/obs"
)

func main() { wire.Main(root()) }

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "navarchctl",
		Short:         "See what a proxy gets from Navarch, and why",
		Version:       obs.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.AddCommand(renderCommand(), explainCommand(), proxyStatusCommand(), proxyConfigCommand(), tokenCommand(), caCommand())
	return cmd
}

// output is the -o flag.
type output string

func (o *output) bind(cmd *cobra.Command, first string, others ...string) {
	*o = output(first)
	choices := append([]string{first}, others...)
	cmd.Flags().VarP(&choice{o, choices}, "output", "o", "Format: "+strings.Join(choices, ", ")+".")
}

// choice is a flag value from a closed set.
type choice struct {
	into *output
	of   []string
}

func (c *choice) String() string { return string(*c.into) }
func (c *choice) Type() string   { return "format" }
func (c *choice) Set(v string) error {
	for _, allowed := range c.of {
		if v == allowed {
			*c.into = output(v)
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

// fetch reads a JSON page of a server's debug or admin address.
func fetch(ctx context.Context, address, path string, into any) error {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+path, nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s%s: %s: %s", address, path, res.Status, strings.TrimSpace(string(body)))
	}
	answer := json.NewDecoder(bytes.NewReader(body))
	answer.UseNumber() // a revision is no floating point number
	if err := answer.Decode(into); err != nil {
		return fmt.Errorf("%s%s: %w", address, path, err)
	}
	return nil
}

var errProblems = errors.New("the configuration has problems (--strict)")
