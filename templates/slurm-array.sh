{#
  The script of one job array. `memlab slurm-template` prints it; `memlab sweep --slurm --template FILE` takes another one.

  A name that is not listed here is an error, and so is a value that a directive cannot hold (a line break).
  `| sh` quotes a value for the shell, `| directive` for a line with #SBATCH.

  experiment  name of the experiment             submission  name of the submission
  name        name of the job, which is unique   comment     the same in words
  number      number of this array, from 0       array       indices and throttle, such as 0-99%10
  tasks       how many tasks it has              runs        how many runs they execute
  log         pattern of the tasks' logs         task_list   file in which each task finds its runs
  memlab      path of memlab                     worker      path of memlab-worker
  ranks       processes of a run                 launch      words in front of each worker, none for a single process

  From [slurm], none where it is not given: partition, account, qos, constraint, time (D-HH:MM:SS, of all runs of a task),
  mem, mem_per_cpu (such as 500M), cpus_per_task, gpus_per_node, gres; nodes (1 where it is not given);
  directives and setup (lists of lines), environment (a list of names and values).
#}
#!/bin/bash
# Array {{ number }} of submission {{ submission }} of the experiment {{ experiment }}: {{ tasks }} tasks, {{ runs }} runs.
# Written by memlab, and can be submitted by hand with sbatch: memlab finds the job by its name.
#SBATCH --job-name={{ name | directive }}
#SBATCH --comment={{ comment | directive }}
#SBATCH --array={{ array }}
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
{% if constraint %}
#SBATCH --constraint={{ constraint | directive }}
{% endif %}
{% if time %}
#SBATCH --time={{ time }}
{% endif %}
#SBATCH --nodes={{ nodes }}
#SBATCH --ntasks={{ ranks }}
{% if cpus_per_task %}
#SBATCH --cpus-per-task={{ cpus_per_task }}
{% endif %}
{% if mem %}
#SBATCH --mem={{ mem }}
{% endif %}
{% if mem_per_cpu %}
#SBATCH --mem-per-cpu={{ mem_per_cpu }}
{% endif %}
{% if gpus_per_node %}
#SBATCH --gpus-per-node={{ gpus_per_node }}
{% endif %}
{% if gres %}
#SBATCH --gres={{ gres | directive }}
{% endif %}
{% for line in directives %}
#SBATCH {{ line }}
{% endfor %}

{% for line in setup %}
{{ line }}
{% endfor %}
{% for name, value in environment %}
export {{ name }}={{ value | sh }}
{% endfor %}
export MEMLAB_WORKER={{ worker | sh }}
exec {{ memlab | sh }} slurm-task {{ task_list | sh }} "$SLURM_ARRAY_TASK_ID"
{%- if launch %} --
{%- for word in launch %} {{ word | sh }}{% endfor %}
{% endif %}

