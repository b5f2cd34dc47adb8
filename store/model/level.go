package model

// Level counts the extensions of what is stored: a kind of record that builds before it do not know belongs to a level of its own. A
// build reads every level up to this one. Which level is in use is one key of the store: it is the highest that every replica
// reads, so that no two replicas serve different configuration because one of them passes over what it does not know (shard/level;
// issue 12, item 13).
const Level = 1

// levels are those of the kinds that not all builds know; the others are stored at every level.
var levels = [NumKinds]uint32{}

// LevelOf is the level from which on records of a kind are stored. Closing kinds have none: a replica that does not know one takes no
// new streams of what it covers, and one that knows it enforces it.
func LevelOf(kind Kind) uint32 {
	if kind >= NumKinds || Marks[kind] == Closing {
		return 0
	}
	return levels[kind]
}
