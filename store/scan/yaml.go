package scan

import (
	"errors"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// YAML is an error where a YAML document has more than most values once its aliases stand for what they name: a few lines of aliases of aliases
// decode to millions. Keys count, and of a long text each 64 bytes as a value. Another error: it is not YAML, or an alias names what it is a part of.
func YAML(text []byte, most int) error {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return err
	}
	n, err := (&tree{most: most, known: map[*yaml.Node]int{}}).values(&document)
	if err == nil && n > most {
		err = fmt.Errorf("it has more than %d values, or texts as long as these", most)
	}
	return err
}

// valueBytes bytes of a text count as one more value: an alias stands for all of the text.
const valueBytes = 64

// tree counts each node once, however many aliases name it.
type tree struct {
	most  int
	known map[*yaml.Node]int // of nodes that aliases name; 0: of one that is being counted
}

func (t *tree) values(of *yaml.Node) (n int, err error) {
	if of.Kind == yaml.AliasNode {
		of = of.Alias
	}
	if of.Anchor == "" {
		return t.below(of)
	}
	switch counted, known := t.known[of]; {
	case known && counted == 0:
		return 0, errors.New("an alias names what it is a part of")
	case known:
		return counted, nil
	}
	t.known[of] = 0
	n, err = t.below(of)
	t.known[of] = n
	return n, err
}

func (t *tree) below(of *yaml.Node) (int, error) {
	all := 1 + len(of.Value)/valueBytes
	for _, c := range of.Content {
		n, err := t.values(c)
		if err != nil {
			return 0, err
		}
		all = min(all+n, t.most+1) // more is too much, by however much
	}
	return all, nil
}
