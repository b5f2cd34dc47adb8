package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"navarch.io/navarch/loadtest/mesh"
	"navarch.io/navarch/loadtest/report"
	"navarch.io/navarch/loadtest/report/page"
	"navarch.io/navarch/loadtest/scene"
)

// listCommand returns the command list.
func listCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List scenarios, suites and presets of meshes", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(t, "SCENARIO\tWORLD\tPROXIES\tWHAT")
			for _, s := range scene.All() {
				fmt.Fprintf(t, "%s\t%s\t%d\t%s\n", s.Name, s.World, s.Proxies, s.Title)
			}
			fmt.Fprintln(t, "\nSUITE\tSCENARIOS")
			for _, name := range suites() {
				fmt.Fprintf(t, "%s\t%v\n", name, scene.Suites[name])
			}
			fmt.Fprintf(t, "\nPRESETS\t%v\n", mesh.Presets())
			return t.Flush()
		},
	}
}

// meshCommand returns the command mesh with its subcommand write, which writes a synthetic mesh to a folder.
func meshCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "mesh", Short: "Synthetic meshes"}
	var scale float64
	var seed uint64
	var form string
	write := &cobra.Command{
		Use: "write SETTINGS FOLDER", Short: "Write a mesh as a folder of YAML; SETTINGS is a preset or a file", Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			settings, err := mesh.Load(args[0])
			if err != nil {
				return err
			}
			if scale <= 0 {
				return errors.New("--scale must be positive")
			}
			settings = settings.Scaled(scale)
			if settings.Form = mesh.Form(form); seed != 0 {
				settings.Seed = seed
			}
			w, err := mesh.New(settings)
			if err != nil {
				return err
			}
			return w.Write(args[1])
		},
	}
	write.Flags().Float64Var(&scale, "scale", 1, "Factor for the size of the mesh.")
	write.Flags().Uint64Var(&seed, "seed", 0, "Seed of the mesh (default: the seed in SETTINGS).")
	write.Flags().StringVar(&form, "form", string(mesh.Kubernetes), "Form of the services: kubernetes or istio.")
	cmd.AddCommand(write)
	return cmd
}

// reportCommand returns the command report.
func reportCommand() *cobra.Command {
	var html string
	cmd := &cobra.Command{
		Use: "report RESULT.json", Short: "Show a result as a table, and write it as a page", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			result, err := report.ReadFile(args[0])
			if err != nil {
				return err
			}
			if html != "" {
				if err := writePage(html, result); err != nil {
					return err
				}
			}
			return result.Table(cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&html, "html", "", "File for the page.")
	return cmd
}

// writePage writes the HTML page of a result to a file. An existing file is replaced atomically.
func writePage(name string, result report.Result) error {
	raw, err := page.OfResult(result)
	if err != nil {
		return err
	}
	return report.Replace(name, raw)
}

// compareCommand returns the command compare.
func compareCommand() *cobra.Command {
	var with []string
	var html string
	cmd := &cobra.Command{
		Use: "compare BEFORE.json... --with AFTER.json...", Short: "Compare the medians of interleaved runs", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			before, err := results(args)
			if err != nil {
				return err
			}
			after, err := results(with)
			if err != nil {
				return err
			}
			c, err := report.Compare(before, after)
			if err != nil {
				return err
			}
			if html != "" {
				raw, err := page.OfComparison(c)
				if err != nil {
					return err
				}
				if err := report.Replace(html, raw); err != nil {
					return err
				}
			}
			return c.Table(cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&html, "html", "", "File for the comparison as a page.")
	cmd.Flags().StringSliceVar(&with, "with", nil, "Results to compare with; may be given several times.")
	_ = cmd.MarkFlagRequired("with")
	return cmd
}

// results reads result files. The error names the first file that cannot be read.
func results(names []string) ([]report.Result, error) {
	var all []report.Result
	for _, name := range names {
		r, err := report.ReadFile(name)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// terminal returns w as a file, or nil if w is not a file. It also reports whether w can show a progress line. The
// second result is true if w is a character device, and the variable TERM is set and not "dumb".
func terminal(w io.Writer) (*os.File, bool) {
	f, ok := w.(*os.File)
	if !ok {
		return nil, false
	}
	info, err := f.Stat()
	return f, err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "" && os.Getenv("TERM") != "dumb"
}
