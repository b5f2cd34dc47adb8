package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"navarch.io/navarch/cmd/navarchctl/progress"
	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/push/meaning"
	"navarch.io/navarch/push/preview"
)

// Bounds of the validation of one bootstrap (a start configuration of Envoy).
const (
	validateFor = time.Minute // longest run of Envoy
	maxRefusal  = 400         // maximum bytes of Envoy's reason, without the "..." at its end
)

// validated runs Envoy to validate the bootstraps of a report, and removes the bootstraps from the report. A bootstrap
// has the configuration of one group of proxies, before and after the change. If Envoy refuses the configuration after
// the change, validated adds a risk. It adds no risk if Envoy also refuses the configuration before the change, with an
// equal reason.
//
// Some groups are not validated. One warning counts the groups for which the report has no bootstrap. For each
// bootstrap that could not be made, a warning names the group. validated fails if Envoy cannot be run, or if a
// validation takes longer than validateFor.
func validated(ctx context.Context, envoy string, r *preview.Report, warnings io.Writer) error {
	defer progress.Work(ctx, "validating by Envoy")()
	skipped := 0
	for i := range r.Affected {
		g := &r.Affected[i]
		b := g.Bootstrap
		g.Bootstrap = nil
		if b == nil {
			skipped++
			continue
		}
		if b.Lacking != "" {
			fmt.Fprintf(warnings, "warning: --envoy: %s is not validated: %s\n", show.Printable(g.Label), show.Printable(b.Lacking))
			continue
		}
		after, err := refusal(ctx, envoy, b.After)
		if err != nil {
			return err
		}
		if after == "" {
			continue
		}
		before := ""
		if len(b.Before) > 0 {
			if before, err = refusal(ctx, envoy, b.Before); err != nil {
				return err
			}
		}
		if before != after {
			r.Risks = withRefusal(r.Risks, refusedBy(g, r, after))
		}
	}
	if skipped > 0 {
		fmt.Fprintf(warnings, "warning: --envoy: %d of %d groups of proxies are not validated: the plan lacks their configurations\n",
			skipped, len(r.Affected))
	}
	return nil
}

// withRefusal returns the risks with one more refusal. Refusals for the same reason form one risk, and their counts are
// added.
func withRefusal(risks []preview.Risk, refusal preview.Risk) []preview.Risk {
	i := slices.IndexFunc(risks, func(r preview.Risk) bool { return r.Code == refusal.Code && r.Text == refusal.Text })
	if i < 0 {
		return slices.Insert(risks, 0, refusal)
	}
	r := &risks[i]
	r.Subjects = append(slices.Clip(r.Subjects), refusal.Subjects...)
	r.Views, r.Proxies = r.Views+refusal.Views, r.Proxies+refusal.Proxies
	return risks
}

// refusedBy returns the risk that Envoy refuses the configuration of the group g. The argument text is Envoy's reason.
// The risk names all EnvoyFilters of the change.
func refusedBy(g *preview.Group, r *preview.Report, text string) preview.Risk {
	var objects []string
	for _, o := range r.Objects {
		if strings.HasPrefix(o.Object, "EnvoyFilter ") {
			objects = append(objects, o.Object)
		}
	}
	return preview.Risk{Code: meaning.EnvoyRefuses, Level: meaning.High.String(), Title: meaning.Titles[meaning.EnvoyRefuses],
		Subjects: []string{g.Label}, Text: "Envoy refuses the configuration: " + text, Objects: objects,
		Count: preview.Count{Views: 1, Proxies: g.Proxies, Example: g.Label}}
}

// refusal returns Envoy's reason to refuse an encoded bootstrap. It is empty if Envoy accepts the bootstrap. refusal
// fails if Envoy cannot be run, or gives no result within validateFor.
func refusal(ctx context.Context, envoy string, bootstrap []byte) (string, error) {
	dir, err := os.MkdirTemp("", "navarchctl")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "bootstrap.pb")
	if err := os.WriteFile(file, bootstrap, 0o600); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, validateFor)
	defer cancel()
	out, err := exec.CommandContext(ctx, envoy, "--mode", "validate", "-c", file, "--disable-hot-restart", "-l", "error").CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return "", nil
	case ctx.Err() != nil:
		return "", fmt.Errorf("--envoy: no result within %v: %w", validateFor, ctx.Err())
	case !errors.As(err, &exit), !exit.Exited(): // killed, for example for lack of memory
		return "", fmt.Errorf("--envoy: %w", err)
	}
	return cmp.Or(complaint(out, file), err.Error()), nil
}

// complaint returns the reason in Envoy's output as one line. It omits the name of the file, and the prefixes of log
// lines, which contain times. Equal reasons therefore have equal texts. The line is cut after maxRefusal bytes.
func complaint(out []byte, file string) string {
	text := strings.ReplaceAll(string(bytes.TrimSpace(out)), file, "bootstrap")
	var lines []string
	for line := range strings.Lines(text) {
		if _, rest, is := strings.Cut(line, "] "); is && strings.HasPrefix(line, "[") {
			for strings.HasPrefix(rest, "[") { // [time][thread][level][module] [file:line] text
				_, rest, _ = strings.Cut(rest, "] ")
			}
			line = rest
		}
		lines = append(lines, strings.TrimSpace(line))
	}
	text = strings.Join(slices.Compact(lines), " ")
	if len(text) > maxRefusal {
		text = strings.ToValidUTF8(text[:maxRefusal], "") + "..."
	}
	return text
}
