package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/cmd/navarchctl/show"
)

// output is the -o flag. "table" is an alias of "short", and "log" of "text", as istioctl has them.
type output string

// Formats. short and text are for people; wide has more columns than short, and name has one name per line.
const (
	short      = "short"
	text       = "text"
	wideFormat = "wide"
	nameFormat = "name"
)

// bind adds the flag. The first format is the default.
func (o *output) bind(cmd *cobra.Command, first string, others ...string) {
	*o = output(first)
	choices := append([]string{first}, others...)
	cmd.PersistentFlags().VarP(&choice{(*string)(o), "format", choices}, "output", "o", "Format: "+strings.Join(choices, ", ")+".")
	completes(cmd, "output", choices...)
}

// bindRows adds the flag of a command that prints rows by write.
func (o *output) bindRows(cmd *cobra.Command) {
	o.bind(cmd, short, wideFormat, "json", "yaml", nameFormat)
}

// allNamespaces adds kubectl's flag for all namespaces, which are the default, to a command with --namespace.
func allNamespaces(cmd *cobra.Command) {
	cmd.Flags().BoolP("all-namespaces", "A", false, "All namespaces, which is the default.")
	cmd.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
}

// choice is a flag value from a closed set; upper and lower case are equal.
type choice struct {
	into *string
	kind string // type in the help
	of   []string
}

// aliases are other words for formats.
var aliases = map[string][]string{"table": {short}, "log": {text}, short: {text}, text: {short}}

func (c *choice) String() string { return *c.into }
func (c *choice) Type() string   { return c.kind }
func (c *choice) Set(v string) error {
	for _, allowed := range c.of {
		if strings.EqualFold(v, allowed) || slices.Contains(aliases[v], allowed) {
			*c.into = allowed
			return nil
		}
	}
	return fmt.Errorf("must be one of %s", strings.Join(c.of, ", "))
}

// forPeople reports whether the format is no input of a program.
func (o output) forPeople() bool { return o == short || o == text || o == wideFormat }

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

// rows is the result of a command, for each format.
type rows struct {
	value any                                 // -o json and yaml
	table func(w io.Writer, wide bool) error  // -o short and wide
	names []string                            // -o name: of the objects or rows
	next  func(cmd *cobra.Command, of output) // prints the next command; may be nil
}

// write prints rows in the format.
func (o output) write(cmd *cobra.Command, r rows) error {
	w := cmd.OutOrStdout()
	var err error
	switch {
	case o.forPeople():
		err = r.table(w, o == wideFormat)
	case o == nameFormat:
		err = printNames(w, r.names)
	default:
		return o.print(w, r.value)
	}
	if err == nil && r.next != nil {
		r.next(cmd, o)
	}
	return err
}

// printNames prints each name once, in the order of its first use.
func printNames(w io.Writer, names []string) error {
	seen := map[string]bool{}
	for _, n := range names {
		if seen[n] || n == "" {
			continue
		}
		seen[n] = true
		if _, err := fmt.Fprintln(w, show.Printable(n)); err != nil {
			return err
		}
	}
	return nil
}

// objectName returns an object of messages, "Kind namespace/name", in the form that wait and describe accept:
// Kind/name.namespace.
func objectName(object string) string {
	kind, of, _ := strings.Cut(object, " ")
	namespace, is, namespaced := strings.Cut(of, "/")
	switch {
	case of == "":
		return kind
	case !namespaced:
		return kind + "/" + of
	}
	return kind + "/" + is + "." + namespace
}

// nextIs returns a next line for rows: the command with the words, and its purpose.
func nextIs(purpose string, words ...string) func(*cobra.Command, output) {
	return func(cmd *cobra.Command, of output) { goesOn(cmd, of, purpose, words...) }
}

// goesOn prints the command that goes on from a result, as the last line of a format for people. It stands on the
// standard error, so that the standard output has the result alone. Flags that select the control plane, the cluster or
// the folder are those of cmd.
func goesOn(cmd *cobra.Command, of output, purpose string, words ...string) {
	if !of.forPeople() {
		return
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "next: %s  # %s\n", commandLine(cmd, words), purpose)
}

// selecting are the flags that a next command has in common with the command before.
var selecting = []string{snapshotFlag, "server", "kubeconfig", "context", "istio-namespace", "revision", "config-dir",
	"cluster-id", "domain"}

// commandLine returns a command of navarchctl, for a shell.
func commandLine(cmd *cobra.Command, words []string) string {
	line := []string{cmd.Root().Name()}
	for _, w := range words {
		line = append(line, shellWord(show.Printable(w)))
	}
	to, _, err := cmd.Root().Find(words)
	if err != nil {
		return strings.Join(line, " ")
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if slices.Contains(selecting, f.Name) && to.Flag(f.Name) != nil && !slices.Contains(words, "--"+f.Name) {
			line = append(line, "--"+f.Name, shellWord(show.Printable(f.Value.String())))
		}
	})
	return strings.Join(line, " ")
}
