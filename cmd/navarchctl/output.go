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

// output is the value of the -o flag: the format in which a command prints its result. istioctl's "table" selects
// short, and its "log" selects text.
type output string

// Formats besides json and yaml. short and text are for people; wide has more columns than short, and name has one name
// per line.
const (
	short      = "short"
	text       = "text"
	wideFormat = "wide"
	nameFormat = "name"
)

// bind adds the flag -o with the given formats. The format first is the default.
func (o *output) bind(cmd *cobra.Command, first string, others ...string) {
	*o = output(first)
	choices := append([]string{first}, others...)
	cmd.PersistentFlags().VarP(&choice{(*string)(o), "format", choices}, "output", "o", "Format: "+strings.Join(choices, ", ")+".")
	completes(cmd, "output", choices...)
}

// bindRows adds the flag -o of a command that prints a table: short, wide, json, yaml, name.
func (o *output) bindRows(cmd *cobra.Command) {
	o.bind(cmd, short, wideFormat, "json", "yaml", nameFormat)
}

// allNamespaces adds kubectl's flag -A, which states the default, to a command with --namespace.
func allNamespaces(cmd *cobra.Command) {
	cmd.Flags().BoolP("all-namespaces", "A", false, "All namespaces, which is the default.")
	cmd.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
}

// choice is a flag value that must be an element of a list. Upper and lower case are equal.
type choice struct {
	into *string
	kind string // type in the help
	of   []string
}

// aliases maps a word to the formats that it may stand for. The word selects the one of these formats that the command
// has.
var aliases = map[string][]string{"table": {short}, "log": {text}, short: {text}, text: {short}}

// String returns the present value.
func (c *choice) String() string { return *c.into }

// Type returns the type of the value for the help text.
func (c *choice) Type() string { return c.kind }

// Set stores the element of the list that v selects. For other values it returns an error that contains the list.
func (c *choice) Set(v string) error {
	for _, allowed := range c.of {
		if strings.EqualFold(v, allowed) || slices.Contains(aliases[strings.ToLower(v)], allowed) {
			*c.into = allowed
			return nil
		}
	}
	return fmt.Errorf("must be one of %s", strings.Join(c.of, ", "))
}

// forPeople reports whether the format is for people: short, text or wide.
func (o output) forPeople() bool { return o == short || o == text || o == wideFormat }

// print writes a value as YAML if the format is yaml. For all other formats it writes JSON.
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

// rows is the result of a command, with a form for each output format.
type rows struct {
	value any                                 // -o json and yaml
	table func(w io.Writer, wide bool) error  // -o short and wide
	names []string                            // -o name: names of the objects or rows
	next  func(cmd *cobra.Command, of output) // suggests a next command; may be nil
}

// write prints the result in the format. Afterwards it calls rows.next, except for JSON and YAML.
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

// printNames prints each name once, in the order of first occurrence, without empty ones.
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

// objectName converts "Kind namespace/name", the form in messages, to Kind/name.namespace, which the commands wait and
// describe accept. "Kind name" becomes Kind/name.
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

// nextIs returns a function for rows.next that suggests a command and states its purpose. The argument words has the
// words of the command.
func nextIs(purpose string, words ...string) func(*cobra.Command, output) {
	return func(cmd *cobra.Command, of output) { goesOn(cmd, of, purpose, words...) }
}

// goesOn prints a suggested next command and its purpose to standard error, so that standard output has only the
// result. It does nothing for formats that programs read. With --snapshot it does nothing for suggested commands that
// do not read a report. Flags of cmd that select the control plane, the cluster or the folder are repeated.
func goesOn(cmd *cobra.Command, of output, purpose string, words ...string) {
	to, _, err := cmd.Root().Find(words)
	if !of.forPeople() || err == nil && openedOf(cmd.Context()) != nil && !isReader(commandName(to)) {
		return
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "next: %s  # %s\n", commandLine(cmd, words), purpose)
}

// selecting lists the flags of the present command that a suggested command repeats. Flags that the suggested command
// lacks, or that have another type there, are omitted.
var selecting = []string{snapshotFlag, "server", "kubeconfig", "context", "istio-namespace", "revision", "config-dir",
	"cluster-id", "domain"}

// commandLine returns a command of navarchctl, quoted for a shell. It repeats the flags of cmd that are in selecting.
func commandLine(cmd *cobra.Command, words []string) string {
	line := []string{cmd.Root().Name()}
	for _, w := range words {
		line = append(line, shellWord(show.Printable(w)))
	}
	if words[0] == "analyze" && slices.Contains(words, "-f") && openedOf(cmd.Context()) != nil {
		return strings.Join(line, " ") // analyze -f does not read a report
	}
	to, _, err := cmd.Root().Find(words)
	if err != nil {
		return strings.Join(line, " ")
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		other := to.Flag(f.Name) // a flag of another type has another meaning, for example wait --revision
		same := other != nil && other.Value.Type() == f.Value.Type()
		if slices.Contains(selecting, f.Name) && same && !slices.Contains(words, "--"+f.Name) {
			line = append(line, "--"+f.Name, shellWord(show.Printable(f.Value.String())))
		}
	})
	return strings.Join(line, " ")
}
