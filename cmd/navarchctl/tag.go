package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/cmd/navarchctl/cluster"
	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/cmd/navarchctl/tags"
)

func tagCommand() *cobra.Command {
	in := &tagFlags{}
	cmd := &cobra.Command{
		Use:   "tag",
		Short: "Revision tags: more names for a revision, by which namespaces and Pods choose it",
		Long: `A tag is a MutatingWebhookConfiguration that has the webhook of a revision answer for namespaces and Pods with the label
istio.io/rev=TAG. The tag default is for those with istio-injection=enabled, and for objects without a revision. Workloads move to another
revision when their Pods are created again after the tag was set to it. These are istioctl's tags: each command sees the other's.`,
		Example: "  navarchctl tag set prod --revision canary\n  navarchctl tag list",
	}
	in.BindCluster(cmd.PersistentFlags())
	cmd.AddCommand(tagSetCommand(in, "set"), tagSetCommand(in, "generate"), tagListCommand(in), tagRemoveCommand(in))
	return cmd
}

// tagFlags selects the cluster of the tags.
type tagFlags struct{ cluster.Flags }

// names returns the names of all tags.
func (in *tagFlags) names(ctx context.Context, _ *cobra.Command, _ []string) (names []string, err error) {
	t, err := openTags(in)
	if err != nil {
		return nil, err
	}
	all, err := t.List(ctx)
	for _, tag := range all {
		names = append(names, tag.Name)
	}
	return names, err
}

// openTags returns the tags of the cluster that the flags select.
func openTags(in *tagFlags) (tags.Tags, error) {
	c, err := in.Open()
	if err != nil {
		return tags.Tags{}, err
	}
	return tags.Tags{API: c.API, Namespace: c.Namespace}, nil
}

// tagSetCommand returns the command set or generate, by its name. The command set changes a tag. The command generate
// prints the tag's webhook configuration.
func tagSetCommand(in *tagFlags, name string) *cobra.Command {
	var (
		revision  string
		overwrite bool
	)
	cmd := &cobra.Command{Use: name + " TAG --revision REVISION", Args: cobra.ExactArgs(1), Short: "Have a name stand for a revision",
		Example: "  navarchctl tag set prod --revision canary\n  navarchctl tag set prod --revision next --overwrite"}
	if name == "generate" {
		cmd.Short = "Print the webhook configuration of a tag, as set would make it"
		cmd.Example = "  navarchctl tag generate prod --revision canary | kubectl apply -f -"
	} else {
		cmd.Flags().BoolVar(&overwrite, "overwrite", false, "Also where the tag stands for another revision.")
	}
	cmd.ValidArgsFunction = offerFirst(in.names)
	cmd.Flags().StringVarP(&revision, "revision", "r", "", "Revision that the tag stands for.")
	if err := cmd.MarkFlagRequired("revision"); err != nil {
		panic(err) // only if the flag is not bound above
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		t, err := openTags(in)
		if err != nil {
			return err
		}
		if name == "generate" {
			made, err := t.Generate(cmd.Context(), args[0], revision)
			if err != nil {
				return err
			}
			text, err := yaml.Marshal(made)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		}
		change, err := t.Set(cmd.Context(), args[0], revision, overwrite)
		if err != nil {
			return err
		}
		if err := t.Apply(cmd.Context(), change); err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(),
			"tag %s stands for revision %s; Pods that are created from now on with the label istio.io/rev=%s get its proxies\n",
			args[0], revision, args[0])
		return nil
	}
	return cmd
}

func tagListCommand(in *tagFlags) *cobra.Command {
	var format output
	cmd := &cobra.Command{Use: "list", Args: cobra.NoArgs,
		Short: "The tags, the revisions that they stand for, and the namespaces that choose them", Example: "  navarchctl tag list -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			t, err := openTags(in)
			if err != nil {
				return err
			}
			all, err := t.List(cmd.Context())
			if err != nil {
				return err
			}
			table, names := [][]string{{"TAG", "REVISION", "NAMESPACES"}}, []string{}
			for _, tag := range all {
				names = append(names, tag.Name)
				table = append(table, []string{tag.Name, tag.Revision, strings.Join(tag.Namespaces, ",")})
			}
			return format.write(cmd, rows{value: all, names: names, next: nextIs("whether the revisions serve", "check"),
				table: func(w io.Writer, _ bool) error { return show.Table(w, table) }})
		}}
	format.bindRows(cmd)
	return cmd
}

func tagRemoveCommand(in *tagFlags) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{Use: "remove TAG", Args: cobra.ExactArgs(1),
		Short: "End a tag; Pods that have proxies keep them", Example: "  navarchctl tag remove prod",
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := openTags(in)
			if err != nil {
				return err
			}
			change, err := t.Remove(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			all, err := t.List(cmd.Context())
			if err != nil {
				return err
			}
			for _, tag := range all {
				if tag.Name != args[0] || len(tag.Namespaces) == 0 {
					continue
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "New Pods of these namespaces, which choose tag %s, will get no proxies: %s\n",
					args[0], strings.Join(tag.Namespaces, ", "))
				if err := confirmed(cmd, yes, args[0]); err != nil {
					return err
				}
			}
			if err := t.Apply(cmd.Context(), change); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "tag %s is removed\n", args[0])
			return nil
		}}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "Do not ask, also where namespaces choose the tag.")
	cmd.ValidArgsFunction = offerFirst(in.names)
	return cmd
}

// errNotConfirmed means that the user did not type the confirmation.
var errNotConfirmed = errors.New("not confirmed: nothing was changed (--yes does not ask)")

// confirmed asks the user to type a word before a step that cannot be undone. If yes is true, it returns nil without
// asking. If the user types anything else, it returns errNotConfirmed. If the input cannot be read, it returns that
// error.
func confirmed(cmd *cobra.Command, yes bool, word string) error {
	if yes {
		return nil
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "Type %q to go on: ", word)
	line, err := bufio.NewReader(io.LimitReader(cmd.InOrStdin(), 1<<10)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if strings.TrimSpace(line) != word {
		return errNotConfirmed
	}
	return nil
}
