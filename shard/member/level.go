package member

import "fmt"

// LevelPath is the blob that says which level of stored configuration is in use (model.Level). Leaders write it (shard/level), and a
// replica that gets ready compares it.
const LevelPath = "level/current"

// LevelValue is a level as it is stored: in the order of bytes as in that of numbers, so that etcd can compare it.
func LevelValue(level uint32) []byte { return fmt.Appendf(nil, "%010d", level) }

// ParseLevel is the inverse of LevelValue. An error: it is anything else.
func ParseLevel(raw []byte) (uint32, error) {
	var level uint32
	if n, err := fmt.Sscanf(string(raw), "%010d", &level); n != 1 || err != nil || string(LevelValue(level)) != string(raw) {
		return 0, fmt.Errorf("level %q: want ten digits", raw)
	}
	return level, nil
}
