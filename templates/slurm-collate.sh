#!/bin/bash
# Writes the tables of the experiment {{ experiment }} when its runs have ended. Written by memlab.
#SBATCH --job-name={{ name | directive }}
#SBATCH --output={{ log | directive }}
#SBATCH --open-mode=append
{% if partition %}
#SBATCH --partition={{ partition | directive }}
{% endif %}
{% if account %}
#SBATCH --account={{ account | directive }}
{% endif %}
{% if qos %}
#SBATCH --qos={{ qos | directive }}
{% endif %}
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --time=00:10:00

exec {{ memlab | sh }} collate {{ folder | sh }}
